"""C source of the functions in exported files; each file contains those that its model needs."""

from __future__ import annotations

HEAD = """/* The model {name}, written by toprank {version}. C99; link with -lm.

     double {name}_score(const double x[{d}])
         the score of one document, higher is better. x holds the features in the order of {name}_features, NAN where a
         value is missing.

     void {name}_scores(const double *rows, long n, double *scores)
         the same of n documents, row after row. */
#include <math.h>

const int {name}_n_features = {d};
const char *const {name}_features[] = {{{features}}};
"""

TAIL = """
double {name}_score(const double *x) {{
    {steps}
    return {score};
}}

void {name}_scores(const double *rows, long n, double *scores) {{
    for (long i = 0; i < n; i++) scores[i] = {name}_score(rows + i * {d});
}}
"""

FUNCTIONS = {
    "wide": """
/* The features that stay as they are, and room for what is made of the others behind them. */
static void wide(const double *x, int n, const int *numbers, const double *center, int width, double *out) {
    for (int j = 0; j < n; j++) {
        out[j] = center ? x[numbers[j]] - center[j] : x[numbers[j]];
        if (center && isnan(out[j])) out[j] = 0.0;
    }
    for (int j = n; j < width; j++) out[j] = 0.0;
}

/* A one in the column of a code. */
static void mark(double code, int n, const int *where, double *out) {
    if (code >= 0.0 && code < n && code == floor(code)) out[where[(int)code]] = 1.0;
}
""",
    "level_mean": """
/* The mean of a level, or of a pair of levels; 0 where a level is not known. (Alone, the second is the only one.) */
static double level_mean(double code, int n, double second, int m, const float *table) {
    if (!(code >= 0.0 && code < n && code == floor(code))) return 0.0;
    if (!(second >= 0.0 && second < m && second == floor(second))) return 0.0;
    return table[(long)code * m + (long)second];
}
""",
    "sigmoid": """
static double sigmoid(double z) {
    const double small = exp(-fabs(z));
    return (z >= 0 ? 1.0 : small) / (1.0 + small);
}
""",
    "linear": """
static void linear(const double *x, int d, int n, const double *center, const double *scale, const double *weights,
                   const double *intercepts, const double *missing, double *out) {
    for (int k = 0; k < n; k++) {
        double sum = 0.0;
        for (int j = 0; j < d; j++)
            sum += isnan(x[j]) ? missing[k * d + j] : weights[k * d + j] * ((x[j] - center[j]) * scale[j]);
        out[k] = sum + intercepts[k];
    }
}
""",
    "forest": """
/* A document goes left where x <= threshold; or, where there are words, where the bit of (int)x is set. A child below 0
   is the leaf -1 - child. `missing` 0: NAN counts as 0; 1: NAN and 0 go by default; 2: NAN does. */
struct node {
    double threshold;
    int feature, left, right, first_word, n_words;
    unsigned char missing, default_left;
};

static int goes_left(const struct node *at, const unsigned long *words, double x) {
    if (at->n_words) {
        if (!(x > -1.0 && x < 32.0 * at->n_words)) return 0;
        const unsigned long category = (unsigned long)(x < 0.0 ? 0.0 : x);
        return (int)(words[at->first_word + category / 32] >> (category % 32) & 1);
    }
    if (isnan(x)) {
        if (at->missing) return at->default_left;
        x = 0.0;
    }
    if (at->missing == 1 && fabs(x) <= (double)1e-35f) return at->default_left;
    return x <= at->threshold;
}

static void forest(const double *x, int n_trees, const int *roots, const struct node *nodes, const double *leaves,
                   const unsigned long *words, const double *intercepts, int n, int flushes, int single_sums,
                   double *out) {
    for (int k = 0; k < n; k++) out[k] = 0.0;
    for (int t = 0; t < n_trees; t++) {
        int node = roots[t];
        while (node >= 0) {
            double value = x[nodes[node].feature];
            if (flushes && fabs(value) <= (double)1e-35f) value = 0.0; /* so close to zero is zero */
            node = goes_left(nodes + node, words, value) ? nodes[node].left : nodes[node].right;
        }
        out[t % n] += leaves[-1 - node];
        if (single_sums) out[t % n] = (double)(float)out[t % n];
    }
    for (int k = 0; k < n; k++) out[k] += intercepts[k];
}
""",
    "network": """
/* The line between knots that x lies on; flat before and behind them. */
static double interpolated(double x, int n, const double *knots, int from_above) {
    int low = -1, high = n; /* the last knot that is not above x */
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        const double knot = from_above ? -knots[n - 1 - middle] : knots[middle];
        if (knot <= x) low = middle; else high = middle;
    }
    if (low < 0 || n == 1) return 0.0;
    if (low == n - 1) return 1.0;
    const double a = from_above ? -knots[n - 1 - low] : knots[low];
    const double b = from_above ? -knots[n - 2 - low] : knots[low + 1];
    const double share = (double)low / (n - 1);
    return ((double)(low + 1) / (n - 1) - share) / (b - a) * (x - a) + share;
}

/* Features mapped (1: sign(x) log(1 + |x|); 2: the share of knots below), standardized, in single precision. */
static void inputs(const double *x, int d, int kind, const double *center, const double *spread, const double *missing,
                   int n_knots, const double *knots, double *out) {
    for (int j = 0; j < d; j++) {
        double y = x[j];
        if (kind == 1) y = copysign(log1p(fabs(y)), y);
        if (kind == 2 && !isnan(y)) {
            const double *own = knots + (long)j * n_knots;
            y = 0.5 * (interpolated(y, n_knots, own, 0) + (1.0 - interpolated(-y, n_knots, own, 1)));
        }
        out[j] = (double)(float)(isnan(x[j]) ? missing[j] : (y - center[j]) / spread[j]);
    }
}

static double activated(double z, int kind) {
    switch (kind) {
        case 1: return z > 0.0 ? z : 0.0;
        case 2: return tanh(z);
        case 3: return z * sigmoid(z);
        case 4: return 0.5 * z * (1.0 + erf(z * 0.70710678118654752440));
        default: return z;
    }
}

static void dense(const double *in, int n_in, int n_out, const double *weights, const double *bias,
                  const double *norm_weight, const double *norm_bias, int activation, double *out) {
    for (int k = 0; k < n_out; k++) {
        double sum = 0.0;
        for (int j = 0; j < n_in; j++) sum += weights[k * n_in + j] * in[j];
        out[k] = sum + bias[k];
    }
    if (norm_weight) {
        double mean = 0.0, variance = 0.0;
        for (int k = 0; k < n_out; k++) mean += out[k] / n_out;
        for (int k = 0; k < n_out; k++) variance += (out[k] - mean) * (out[k] - mean) / n_out;
        const double deviation = sqrt(variance + 1e-5);
        for (int k = 0; k < n_out; k++) out[k] = (out[k] - mean) / deviation * norm_weight[k] + norm_bias[k];
    }
    for (int k = 0; k < n_out; k++) out[k] = activated(out[k], activation);
}
""",
    "expected_gain": """
/* The gains of n grades times their probabilities. `softmax`: from outputs up to a constant; else outputs are log odds
   of at least the grades 1, 2 ... `calibrated`: set right a step from grade to grade at a time. P has room for 2n. */
static double expected_gain(const double *outputs, int softmax, int n, const double *gains, const double *a,
                            const double *b, int calibrated, int by_score, double *P) {
    double total = 0.0, most = outputs[0], expected = 0.0, reached = 1.0;
    for (int k = 0; softmax && k < n; k++) most = outputs[k] > most ? outputs[k] : most;
    for (int k = 0; k < n; k++) {
        if (softmax) {
            P[k] = exp(outputs[k] - most);
        } else {
            P[k] = (k ? sigmoid(outputs[k - 1]) : 1.0) - (k < n - 1 ? sigmoid(outputs[k]) : 0.0);
            P[k] = P[k] > 0.0 ? P[k] : 0.0;
        }
        total += P[k];
    }
    for (int k = 0; k < n; k++) P[k] /= total;
    if (calibrated) {
        double low = gains[0], high = gains[0], *right = P + n;
        for (int k = 1; k < n; k++) low = gains[k] < low ? gains[k] : low, high = gains[k] > high ? gains[k] : high;
        for (int k = 1; k < n; k++) {
            double up = 0.0, down = by_score ? 0.0 : P[k - 1];
            for (int i = 0; i < n; i++) {
                if (by_score) up += P[i] * (gains[i] - low), down += P[i] * (high - gains[i]);
                else if (i >= k) up += P[i];
            }
            const double odds = a[k - 1] + b[k - 1] * (log(up > 1e-12 ? up : 1e-12) - log(down > 1e-12 ? down : 1e-12));
            right[k - 1] = reached * sigmoid(-odds);
            reached *= sigmoid(odds);
        }
        right[n - 1] = reached;
        P = right;
    }
    for (int k = 0; k < n; k++) expected += gains[k] * P[k];
    return expected;
}
""",
}
