/* Rows of numbers in JSON text, which make up most requests to a service. `json_rows` reads arrays of numbers,
   booleans and nulls. Anything else (strings, objects, numbers too large for f8, errors) is left to a parser that
   can report the problem. One instruction set is sufficient. */
#include "decimals.h"

/* 10^19 / 10^n: a mantissa below it can take n more digits. */
static const u8 ROOM_FOR[9] = {10000000000000000000u, 1000000000000000000u, 100000000000000000u, 10000000000000000u,
                               1000000000000000u,     100000000000000u,     10000000000000u,     1000000000000u,
                               100000000000u};

INLINE bool json_blank(u1 byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

INLINE const u1 *json_behind_blanks(const u1 *at) {
    while (json_blank(*at)) at++;
    return at;
}

/* Return the number of digits from `at` on; they are appended to the mantissa while it has room. */
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

/* Parse the usual number, such as 0.25: one digit, the point, at most seven digits and no exponent. Return the
   position behind it, or NULL for other numbers. Both parts are exact, so the quotient is rounded once. */
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

/* Return the position behind the number at `text`, according to JSON's grammar; NULL if it is invalid or too large.
   The text is followed by WINDOW bytes that are no digits, so no loop reads beyond it. */
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

/* Read one array of d numbers, booleans or nulls; return the position behind it, or NULL for anything else. */
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

/* Read arrays of d numbers, booleans (1, 0) or nulls (NaN), each followed by a comma; WINDOW zero bytes at the end
   prevent reads beyond the text. Return -1, or the index of the first invalid array. */
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
