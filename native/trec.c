/* Loops over TREC files: lines of words separated by blanks. One instruction set is sufficient. */
#include "decimals.h"

/* Errors in a line. */
CODES(TrecFault, FINE, COLUMNS, VALUE, FINITE, SIZE)

/* A space, tab, carriage return, vertical tab or form feed: blanks within a line. */
INLINE bool is_blank(u1 byte) { return byte == ' ' || byte == '\t' || (byte >= 11 && byte <= 13); }

INLINE i8 skip_blanks(const u1 *text, i8 at, i8 end) {
    while (at < end && is_blank(text[at])) at++;
    return at;
}
INLINE i8 word_end(const u1 *text, i8 at, i8 end) {
    while (at < end && !is_blank(text[at]) && text[at] != '\n') at++;
    return at;
}

/* An upper bound on the number of non-empty lines. */
KERNEL(i8, count_lines)(i8 n, const u1 text[n]) {
    i8 lines = 0;
    for (i8 at = 0; at < n;) {
        lines += text[at] != '\n';
        const u1 *newline = memchr(text + at, '\n', (size_t)(n - at));
        at = newline ? newline - text + 1 : n;
    }
    return lines;
}

/* Read lines whose columns 0 and 2 are ids and whose `value_column` (above 2) is a number; return the error, 0 if
   none. Reading starts at `at`; each line must have n_columns words, or more if `rest`. `spans` receives start and
   end of both ids, `values` the number, `found` the number of lines and the position of the error. */
KERNEL(i8, trec_table)(i8 n, i8 r, const u1 text[n], i8 at, i8 n_columns, u1 rest, i8 value_column, i8 spans[r][4],
                       f8 values[r], i8 found[2]) {
    i8 rows = 0, fault = FINE, start;
    for (at = most(at, 0); at < n; at = start + 1) {
        i8 words = 0, value_at = at, value_end = at, stop = at, places[4] = {at, at, at, at};
        while ((start = skip_blanks(text, stop, n)) < n && text[start] != '\n') {
            stop = word_end(text, start, n);
            if (words == 0 || words == 2) {
                places[words] = start;
                places[words + 1] = stop;
            } else if (words == value_column) {
                value_at = start;
                value_end = stop;
            }
            words++;
        }
        if (words == 0) continue;
        if (rows == r || words < n_columns || (words > n_columns && !rest)) {
            fault = COLUMNS;
            at = skip_blanks(text, at, n);
            break;
        }
        i8 after = value_at;
        int kind = read_number(text, value_at, value_end, false, values + rows, &after);
        fault = kind == BAD || after != value_end ? VALUE : kind == HUGE_NUMBER ? SIZE : kind != NUMBER ? FINITE : FINE;
        if (fault != FINE) {
            at = value_at;
            break;
        }
        memcpy(spans[rows++], places, sizeof places);
    }
    found[0] = rows;
    found[1] = at;
    return fault;
}

/* Copy the words at spans[:, first] to spans[:, first + 1] byte by byte into rows of letters; return whether one is
   not ASCII. */
KERNEL(i8, copy_words)(i8 n, i8 r, i8 w, const u1 text[n], const i8 spans[r][4], i8 first, u4 letters[r][w]) {
    u4 together = 0;
    for (i8 row = 0; row < r; row++) {
        i8 start = spans[row][first & 2], length = least(least(spans[row][(first & 2) + 1], n) - start, w);
        for (i8 k = 0; k < w; k++) {
            letters[row][k] = start >= 0 && k < length ? text[start + k] : 0;
            together |= letters[row][k];
        }
    }
    return together > 127;
}

/* Compute a hash for each pair of words (rows of letters padded with zeros): equal pairs have equal hashes (FNV-1a). */
KERNEL(void, hash_pairs)(i8 n, i8 a, i8 b, const u4 one[n][a], const u4 other[n][b], u8 hashes[n]) {
    const u8 prime = 1099511628211u;
    for (i8 row = 0; row < n; row++) {
        u8 code = 14695981039346656037u;
        for (i8 k = 0; k < a && one[row][k]; k++) code = (code ^ one[row][k]) * prime;
        code = (code ^ ((u8)1 << 32)) * prime; /* separator: distinguishes ("ab", "c") from ("a", "bc") */
        for (i8 k = 0; k < b && other[row][k]; k++) code = (code ^ other[row][k]) * prime;
        hashes[row] = code;
    }
}
