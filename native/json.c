/* Rows of numbers in JSON text: what most requests to a service consist of.

`json_rows` reads arrays of numbers, truth values and nulls. Whatever else there may be (words, objects, numbers that no f8
can hold, mistakes) is left to a reader that can say what is wrong with it. One set of instructions is enough. */
#include "decimals.h"

/* 10^19 / 10^n: a mantissa below it has room for n more digits. */
static const u8 ROOM_FOR[9] = {10000000000000000000u, 1000000000000000000u, 100000000000000000u, 10000000000000000u,
                               1000000000000000u,     100000000000000u,     10000000000000u,     1000000000000u,
                               100000000000u};

INLINE bool json_blank(u1 byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

INLINE const u1 *json_behind_blanks(const u1 *at) {
    while (json_blank(*at)) at++;
    return at;
}

/* How many digits there are from `at` on; they are added to the mantissa as long as it has room. */
INLINE i8 json_digits(const u1 *at, u8 *mantissa, bool *fits) {
    i8 count = 0, n;
    do {
        u8 more;
        n = digits_at(at + count, &more);
        *fits &= *mantissa < ROOM_FOR[n];
        *mantissa = *mantissa * SMALL_TENS[n] + more;
        count += n;
    } while (n == 8);
    return count;
}

/* The usual number, such as 0.25: one digit, the point, at most seven digits and no exponent. The place behind it, or NULL
where it is another. Both parts are exact, so that the quotient is rounded once. */
INLINE const u1 *json_usual_number(const u1 *text, f8 *value) {
    const u1 *at = text + (*text == '-');
    u8 whole = (u8)(*at - '0'), decimals;
    if (whole > 9 || at[1] != '.') return NULL;
    i8 n = digits_at(at + 2, &decimals);
    at += 2 + n;
    if (n == 0 || n == 8 || (*at | 32) == 'e') return NULL;
    f8 size = (f8)(i8)(whole * SMALL_TENS[n] + decimals) / TEN_TO[n];
    *value = *text == '-' ? -size : size;
    return at;
}

/* The place behind the number at `text`, which is spelled as JSON spells numbers; NULL where it is not, or is too large.
The text goes on for WINDOW bytes that are no digits, so that no loop here runs away. */
static const u1 *json_number(const u1 *text, f8 *value) {
    const u1 *start = text + (*text == '-'), *at = start;
    u8 mantissa = 0;
    bool fits = true;
    i8 whole = json_digits(at, &mantissa, &fits), decimals = 0, after;
    if (whole == 0 || (whole > 1 && *start == '0')) return NULL;
    at += whole;
    if (*at == '.') {
        decimals = json_digits(at + 1, &mantissa, &fits);
        if (decimals == 0) return NULL;
        at += 1 + decimals;
    }
    if ((*at | 32) == 'e') {
        u8 ignored = 0;
        at += 1 + (at[1] == '-' || at[1] == '+');
        i8 digits = json_digits(at, &ignored, &fits);
        if (digits == 0) return NULL;
        at += digits;
        fits = false;
    }
    if (LIKELY(fits)) {
        if (!scaled(mantissa, -decimals, false, start, at, 0, false, value)) return NULL;
        *value = *text == '-' ? -*value : *value;
        return at;
    }
    return read_any_number(text, 0, at - text, false, value, &after) == NUMBER ? at : NULL;
}

/* One array of d numbers, truth values or nulls: the place behind it, or NULL where it is anything else. */
static const u1 *json_row(const u1 *at, i8 d, f8 *row) {
    at = json_behind_blanks(at);
    if (*at++ != '[') return NULL;
    for (i8 j = 0; j < d; j++) {
        at = json_behind_blanks(at);
        if (*at == 'n' && memcmp(at, "null", 4) == 0) {
            row[j] = NAN;
            at += 4;
        } else if (*at == 't' && memcmp(at, "true", 4) == 0) {
            row[j] = 1;
            at += 4;
        } else if (*at == 'f' && memcmp(at, "false", 5) == 0) {
            row[j] = 0;
            at += 5;
        } else {
            const u1 *behind = json_usual_number(at, row + j);
            at = LIKELY(behind != NULL) ? behind : json_number(at, row + j);
            if (at == NULL) return NULL;
        }
        at = json_behind_blanks(at);
        if (*at++ != (j + 1 < d ? ',' : ']')) return NULL;
    }
    return json_behind_blanks(at);
}

/* Arrays of d numbers, truth values (1, 0) or nulls (NaN), each with a comma behind it; then WINDOW zero bytes, so that nothing
is read beyond the text. -1, or the number of the first array that is anything else. */
KERNEL(i8, json_rows)(i8 t, i8 n, i8 d, const u1 text[t], f8 rows[n][d]) {
    if (t < WINDOW || d < 1) return 0;
    for (i8 k = t - WINDOW; k < t; k++)
        if (text[k] != 0) return 0;
    const u1 *at = text;
    for (i8 i = 0; i < n; i++) {
        at = json_row(at, d, rows[i]);
        if (at == NULL || *at++ != ',') return i;
    }
    return *at == 0 && at == text + t - WINDOW ? -1 : n;
}
