/* Loops over LETOR text: tokenization of a line, the survey pass, and the reading pass. Both passes work on a chunk
   of whole lines. The survey measures, so that the second pass can allocate arrays of the right size: it reads only
   the first and the last feature id of a row, which suffices if ids ascend; the second pass reads every id. */
#include "eight_decimals.h"

#define LARGEST_ID INT64_C(2147483647)

/* Space, tab or carriage return: allowed between tokens and at the end of a line. */
INLINE bool is_blank(u1 byte) { return byte == ' ' || byte == '\t' || byte == '\r'; }

INLINE i8 skip_blanks(const u1 *text, i8 at, i8 end) {
    while (at < end && is_blank(text[at])) at++;
    return at;
}
INLINE i8 word_end(const u1 *text, i8 at, i8 end) {
    while (at < end && !is_blank(text[at])) at++;
    return at;
}

/* Return the next blank, newline or # from `at` on, or `end`. */
INLINE i8 token_end(const u1 *text, i8 at, i8 end) {
    while (at < end && !is_blank(text[at]) && text[at] != '\n' && text[at] != '#') at++;
    return at;
}

/* Return the next such byte from `at` on, or `end`. */
INLINE i8 find(u1 byte, const u1 *text, i8 at, i8 end) {
    const u1 *found = at < end ? memchr(text + at, byte, (size_t)(end - at)) : NULL;
    return found ? found - text : end;
}

/* Return the first carriage return that is not followed by a line end, or -1. */
KERNEL(i8, lone_return)(i8 n, const u1 text[n]) {
    for (i8 at = find('\r', text, 0, n); at + 1 < n; at = find('\r', text, at + 1, n))
        if (text[at + 1] != '\n' && text[at + 1] != '\r') return at;
    return -1;
}

/* Find start (-1: none) and end of the id behind `qid:`, given the position after the label. */
INLINE i8 query_token(const u1 *text, i8 at, i8 end, i8 *stop) {
    at = skip_blanks(text, at, end);
    *stop = at;
    if (at + 4 > end || memcmp(text + at, "qid:", 4) != 0) return -1;
    *stop = token_end(text, at + 4, end);
    return at + 4;
}

/* Parse the integer of a token; return false for unusual spellings (+, leading zeros, -0). Integers of more than 18
   digits count as words, since they may not fit in 64 bits. */
static bool usual_integer(const u1 *text, i8 start, i8 stop, i8 *value) {
    bool negative = start < stop && text[start] == '-';
    i8 first = start + negative, n_digits = stop - first, number = 0;
    *value = 0;
    if (n_digits < 1 || n_digits > 18 || (text[first] == '0' && (n_digits > 1 || negative))) return false;
    for (i8 i = first; i < stop; i++) {
        if ((u1)(text[i] - '0') > 9) return false;
        number = number * 10 + (text[i] - '0');
    }
    *value = negative ? -number : number;
    return true;
}

/* Find start and end of the document id in the comment [at, end) (behind its #); start = end if there is none. It is
   the word behind `docid =` (with or without blanks around the sign), or else the only word of the comment. */
static i8 document_id(const u1 *text, i8 at, i8 end, i8 *stop) {
    i8 words = 0, only = at, only_stop = at;
    for (;;) {
        i8 start = skip_blanks(text, at, end);
        if (start == end) break;
        at = word_end(text, start, end);
        if (at - start >= 5 && memcmp(text + start, "docid", 5) == 0) {
            i8 found = skip_blanks(text, start + 5, end);
            if (found < end && text[found] == '=') {
                found = skip_blanks(text, found + 1, end);
                *stop = word_end(text, found, end);
                return found;
            }
        }
        words++;
        only = start;
        only_stop = at;
    }
    *stop = words == 1 ? only_stop : end;
    return words == 1 ? only : end;
}

/* Columns of the run table, one row per run: the bytes of the query token (start -1: no token, stop: its expected
   position), the token as a number, and the number of rows and features of the run. */
CODES(LetorRun, START, STOP, TOKEN_NUMBER, ROWS, ENTRIES, RUN_COLUMNS)

/* State of the survey: the current position, the range of feature ids, the sizes so far (WORDS: runs whose token is
   not a number), and the size of the document ids. */
CODES(LetorSurvey, AT, LEAST_ID, MOST_ID, N_ROWS, N_RUNS, N_WORDS, N_IDENTIFIED, ID_LENGTH, ID_FOREIGN, ID_ZERO, SURVEY_STATE)

static void survey_id(const u1 *text, i8 at, i8 end, i8 *state) {
    i8 value = 0, start = at;
    for (; at < end && (u1)(text[at] - '0') <= 9 && value <= LARGEST_ID; at++) value = value * 10 + (text[at] - '0');
    if (at > start && at < end && text[at] == ':' && value <= LARGEST_ID) {
        state[LEAST_ID] = least(state[LEAST_ID], value);
        state[MOST_ID] = most(state[MOST_ID], value);
    }
}

/* Counted in bytes, 192 at a time, so that the compiler fills whole registers. */
static i8 count_colons(const u1 *text, i8 at, i8 end) {
    i8 colons = 0;
    for (; at + 192 <= end; at += 192) {
        u1 some = 0;
        for (int i = 0; i < 192; i++) some += text[at + i] == ':';
        colons += some;
    }
    for (; at < end; at++) colons += text[at] == ':';
    return colons;
}

/* Count the features (colons) in [at, end); the first and the last id extend the range of ids. */
static i8 survey_features(const u1 *text, i8 at, i8 end, i8 *state) {
    i8 colons = count_colons(text, at, end);
    if (colons == 0) return 0;
    survey_id(text, skip_blanks(text, at, end), end, state);
    i8 last = end - 1;
    while (text[last] != ':') last--;
    while (last > at && !is_blank(text[last - 1])) last--;
    survey_id(text, last, end, state);
    return colons;
}

static void survey_comment(const u1 *text, i8 at, i8 end, i8 *state) {
    i8 stop, start = document_id(text, at, end, &stop);
    if (stop <= start) return;
    state[N_IDENTIFIED]++;
    state[ID_LENGTH] = most(state[ID_LENGTH], stop - start);
    for (i8 i = start; i < stop; i++) state[ID_FOREIGN] |= text[i] > 127;
    if (text[stop - 1] == 0 && state[ID_ZERO] == 0) state[ID_ZERO] = stop; /* arrays of strings drop zeros at the end */
}

INLINE bool continues(const u1 *text, i8 start, i8 stop, const i8 *run, i8 end) {
    if (start < 0 || run[START] < 0) return start < 0 && run[START] < 0;
    i8 length = stop - start;
    if (run[STOP] > end || run[STOP] - run[START] != length) return false;
    return memcmp(text + start, text + run[START], (size_t)length) == 0;
}

/* Count rows, runs, features and document ids from state[AT] to the end, or until the run table is full. */
KERNEL(void, letor_survey)(i8 n, i8 r, const u1 text[n], i8 runs[r][5], i8 state[10]) {
    i8 at = state[AT];
    if (at < 0 || state[N_RUNS] < 0 || state[N_RUNS] > r) return; /* not the result of an earlier call */
    while (at < n) {
        i8 line = at, stop;
        at = skip_blanks(text, at, n);
        if (at == n || text[at] == '\n' || text[at] == '#') {
            at = find('\n', text, at, n) + 1;
            continue;
        }
        i8 start = query_token(text, token_end(text, at, n), n, &stop), run = state[N_RUNS] - 1;
        if (run < 0 || !continues(text, start, stop, runs[run], n)) {
            if (++run >= r) {
                state[AT] = line;
                return;
            }
            i8 value = 0;
            bool usual = start >= 0 && usual_integer(text, start, stop, &value);
            state[N_RUNS]++;
            state[N_WORDS] += !usual;
            i8 fresh[RUN_COLUMNS] = {start, stop, value, 0, 0};
            memcpy(runs[run], fresh, sizeof fresh);
        }
        i8 line_end = find('\n', text, stop, n), features_end = find('#', text, stop, line_end);
        runs[run][ROWS]++;
        runs[run][ENTRIES] += survey_features(text, stop, features_end, state);
        state[N_ROWS]++;
        if (features_end < line_end) survey_comment(text, features_end + 1, line_end, state);
        at = line_end + 1;
    }
    state[AT] = n;
}

/* Faults: the expected token at FAULT_AT. CHANGED: the text differs from the surveyed one: it has other rows or
   entries. */
CODES(LetorFault, FINE, LABEL, LABEL_FINITE, LABEL_SIZE, QUERY, FEATURE, ID_SIZE, ID_BELOW, ID_BEYOND, REPEATED,
      VALUE_WANTED, VALUE_SIZE, CHANGED)

#define KNOWN_IDS 512
#define MOST_STARTS (KNOWN_IDS + 64 + 16) /* maximum tokens: one more look than requested */

/* Parameters and results of a pass over a chunk: the range of ids outside the result, whether ids of a sparse row
   are out of order, and the position of the fault. `known` contains the prefixes " 57:" of the features, which are
   matched instead of parsed. */
typedef struct {
    const u1 *text;
    i8 end, first_id, width;
    bool first_is_given, width_is_given, shuffled;
    f8 missing;
    i8 least_id, most_id, fault_at, n_known;
    u8 known[KNOWN_IDS + 8], mask[KNOWN_IDS + 8];
    u1 known_length[KNOWN_IDS + 8];
} pass;

static void learn_ids(pass *p) {
    p->n_known = p->first_id < 0 || p->first_id > 100000 ? 0 : least(p->width, KNOWN_IDS);
    for (i8 column = 0; column < p->n_known; column++) {
        u8 word = ':', mask = 0xFFFF;
        for (i8 id = p->first_id + column, first = 1; id > 0 || first; id /= 10, first = 0) {
            word = word << 8 | (u8)('0' + id % 10);
            mask = mask << 8 | 0xFF;
        }
        p->known[column] = word << 8 | ' ';
        p->mask[column] = mask;
        p->known_length[column] = (u1)(8 - (__builtin_clzll(mask) >> 3));
    }
}

INLINE i8 fault(pass *p, i8 what, i8 at) {
    p->fault_at = at;
    return -what;
}

/* Parse a feature id, clamped above the legal range if it is larger, and return the position of the colon behind it
   (-1: none). */
INLINE i8 read_id(const u1 *text, i8 at, i8 end, i8 *colon) {
    if (at + 8 <= end) {
        u8 number;
        i8 n = digits_at(text + at, &number);
        if (n > 0 && n < 8 && text[at + n] == ':') {
            *colon = at + n;
            return (i8)number;
        }
    }
    i8 start = at, value = 0;
    for (; at < end && (u1)(text[at] - '0') <= 9; at++) value = least(value * 10 + (text[at] - '0'), LARGEST_ID + 1);
    *colon = start < at && at < end && text[at] == ':' ? at : -1;
    return value;
}

/* Store the label (NULL: NaN, unjudged) and skip the query token; return the position after them, or a fault. */
static i8 read_label_and_query(pass *p, i8 at, f8 *label) {
    i8 after, stop;
    int found = read_number(p->text, at, p->end, false, label, &after);
    if (found == HUGE_NUMBER) return fault(p, LABEL_SIZE, at);
    if (found != NUMBER && found != MISSING) return fault(p, found == BAD ? LABEL : LABEL_FINITE, at);
    i8 start = query_token(p->text, after, p->end, &stop);
    if (start == stop) return fault(p, QUERY, start);
    return start >= 0 ? stop : after;
}

static void copy_id(const u1 *text, i8 at, i8 end, u4 *letters, i8 width) {
    i8 stop, start = at < end ? document_id(text, at, end, &stop) : (stop = at);
    for (i8 k = 0; k < width; k++) letters[k] = start + k < stop ? text[start + k] : 0;
}

#define VALUE f4
#define BITS u4
#define HOLE 0x7FC07070u
#define INDEX i4
#define NAME(name) name##__f4_i4
#include "letor_parse.inc"
#define INDEX i8
#define NAME(name) name##__f4_i8
#include "letor_parse.inc"
#undef VALUE
#undef BITS
#undef HOLE
#define VALUE f8
#define BITS u8
#define HOLE 0x7FF8707070707070u
#define INDEX i4
#define NAME(name) name##__f8_i4
#include "letor_parse.inc"
#define INDEX i8
#define NAME(name) name##__f8_i8
#include "letor_parse.inc"
