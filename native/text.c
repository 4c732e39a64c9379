/* Term overlap of a query and a document: one binary search in the document's words for each word of the query.
   Words are numbered in alphabetical order, so the words that begin with a word of the query are a range of numbers,
   and the word itself is the first of them. */
#include "vectors.h"

CODES(Match, BM25, COSINE, DIRICHLET, WORDS, IDF, PREFIXES, LARGEST)
_Static_assert(LARGEST + 1 == 7, "a column of `out` for each");
CODES(Phrase, ABSENT, CONTAINED, EQUAL)

/* Return the first position from `start` on, before `stop`, whose term is at least `least_term`. */
INLINE i8 place_of(i8 start, i8 stop, const i4 *terms, i4 least_term) {
    while (start < stop) {
        const i8 middle = start + (stop - start) / 2;
        if (terms[middle] < least_term) start = middle + 1;
        else stop = middle;
    }
    return start;
}

/* Sums over the words shared by query and document, for each row (see `toprank.text.features`). `low` and `high` are
   the range of the words that begin with a word of the query, `words` the word itself or −1; `repeats` its frequency
   in the query; `importance` its idf over all fields, `background` μ·p(word); `norms` is k₁(1 − b + b·length/mean
   length), `penalties` log((length + μ)/μ). */
KERNEL(void, text_matches)
(i8 n, i8 q, i8 d, i8 e, i8 w, const i8 documents[n], const i8 offsets[q + 1], const i8 word_offsets[q + 1],
 const i4 words[w], const i4 low[w], const i4 high[w], const f8 repeats[w], const f8 idf[w], const f8 importance[w],
 const f8 background[w], const i8 starts[d + 1], const i4 terms[e], const f4 counts[e], const f8 norms[d],
 const f8 penalties[d], f8 k1,
 f8 out[restrict n][7]) {
    for (i8 k = 0; k < q; k++)
        for (i8 row = offsets[k]; row < offsets[k + 1]; row++) {
            const i8 document = documents[row], start = starts[document], stop = starts[document + 1];
            f8 sums[LARGEST + 1] = {0.0};
            for (i8 j = word_offsets[k]; j < word_offsets[k + 1]; j++) {
                if (low[j] >= high[j]) continue;
                const i8 place = place_of(start, stop, terms, low[j]);
                if (place == stop || terms[place] >= high[j]) continue;
                sums[PREFIXES] += 1.0;
                if (terms[place] != words[j]) continue;
                const f8 count = (f8)counts[place];
                sums[BM25] += repeats[j] * idf[j] * (count * (k1 + 1.0) / (count + norms[document]));
                sums[COSINE] += (1.0 + log1(repeats[j])) * idf[j] * ((1.0 + log1(count)) * idf[j]);
                sums[DIRICHLET] += repeats[j] * larger(0.0, log1(1.0 + count / background[j]) - penalties[document]);
                sums[WORDS] += 1.0;
                sums[IDF] += importance[j];
                sums[LARGEST] = larger(sums[LARGEST], importance[j]);
            }
            for (i8 i = 0; i <= LARGEST; i++) out[row][i] = sums[i];
        }
}

/* Return whether the words of a query occur in a document as a phrase, or are its whole text; false for empty
   queries. */
KERNEL(void, text_phrases)
(i8 n, i8 q, i8 d, i8 e, i8 w, const i8 documents[n], const i8 offsets[q + 1], const i8 word_offsets[q + 1],
 const i4 words[w], const i8 starts[d + 1], const i4 sequence[e], u1 out[restrict n]) {
    for (i8 k = 0; k < q; k++) {
        const i4 *phrase = words + word_offsets[k];
        const i8 m = word_offsets[k + 1] - word_offsets[k];
        for (i8 row = offsets[k]; row < offsets[k + 1]; row++) {
            const i8 start = starts[documents[row]], stop = starts[documents[row] + 1];
            u1 found = ABSENT;
            for (i8 first = start; m && first + m <= stop; first++) {
                i8 i = 0;
                while (i < m && sequence[first + i] == phrase[i]) i++;
                if (i == m) {
                    found = m == stop - start ? EQUAL : CONTAINED;
                    break;
                }
            }
            out[row] = found;
        }
    }
}
