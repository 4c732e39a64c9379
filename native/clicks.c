/* Click models: posterior examination probabilities of sessions, and the sums for fitting. One instruction set is
   sufficient. */
#include "vectors.h"

/* Cascade users: they examine the first document, and the next one after a skip with probability `skip`, after a
   click with probability `after[kind]`. For each impression of sessions first…last, compute P(examined | clicks),
   and P(examined, and next one examined | clicks); for each session its log-likelihood. A click that is impossible
   under the model gives -infinity, and counts as examined. */
KERNEL(i8, cascade_expectations)(i8 s, i8 n, i8 p, i8 k, const i8 offsets[s + 1], const i8 pair[n], const u1 clicks[n],
                                 const f8 attraction[p], const i8 kind[n], const f8 after[k], f8 skip, i8 first,
                                 i8 last, f8 examined[n], f8 onward[n], f8 values[s]) {
    const i8 longest = longest_query(last - first, offsets + first);
    f8 *next = scratch(2 * longest, sizeof(f8)); /* P(all below | next one examined), and if it was not examined */
    if (!next) return OUT_OF_MEMORY;
    for (i8 session = first; session < last; session++) {
        const i8 begin = offsets[session], length = offsets[session + 1] - begin;
        f8 seen = 1.0, unseen = 1.0;
        for (i8 r = length - 1; r >= 0; r--) {
            const f8 a = attraction[pair[begin + r]];
            next[2 * r] = seen, next[2 * r + 1] = unseen;
            if (clicks[begin + r]) {
                const f8 go = after[kind[begin + r]];
                seen = a * (go * seen + (1.0 - go) * unseen);
                unseen = 0.0;
            } else {
                seen = (1.0 - a) * (skip * seen + (1.0 - skip) * unseen);
            }
            const f8 largest = larger(seen, unseen);
            if (largest > 0.0 && largest < 1e-100) seen /= largest, unseen /= largest;
        }
        f8 looked = 1.0, chance = 1.0, total = 0.0; /* P(examined | clicks above); P(clicks so far); its log */
        for (i8 r = 0; r < length; r++) {
            const i8 at = begin + r;
            const f8 a = attraction[pair[at]], go = clicks[at] ? after[kind[at]] : skip;
            const f8 goes = go * next[2 * r], stays = (1.0 - go) * next[2 * r + 1];
            const f8 here = clicks[at] ? looked * a : looked * (1.0 - a) * (goes + stays);
            const f8 never = clicks[at] ? 0.0 : (1.0 - looked) * next[2 * r + 1];
            const f8 share = clicks[at] || here + never <= 0.0 ? 1.0 : here / (here + never);
            examined[at] = share;
            onward[at] = goes + stays > 0.0 ? share * goes / (goes + stays) : 0.0;
            const f8 click = looked * a;
            chance *= clicks[at] ? click : 1.0 - click;
            if (chance < 1e-200) total += chance > 0.0 ? log1(chance) : -INFINITY, chance = 1.0;
            looked = clicks[at] ? go : click < 1.0 ? go * looked * (1.0 - a) / (1.0 - click) : 0.0;
        }
        values[session] = total + log1(chance);
    }
    give_back(next);
    return 0;
}

/* Expected counts for fitting satisfaction: for each pair, how often it was examined and satisfied the user; for
   impressions with one below, how often the next one was examined, and how often the user was not satisfied. Results
   are added to the current values; sessions of concurrent calls must have no pairs in common. A user who clicks and
   does not continue was satisfied, or abandoned the search; for the last document only the click is known. */
KERNEL(void, satisfaction_sums)(i8 s, i8 n, i8 p, const i8 offsets[s + 1], const i8 pair[n], const u1 clicks[n],
                                const f8 weight[s], const f8 satisfaction[p], f8 patience, const f8 examined[n],
                                const f8 onward[n], i8 first, i8 last, f8 looked[p], f8 enough[p], f8 totals[2]) {
    f8 went = 0.0, unsatisfied = 0.0;
    for (i8 session = first; session < last; session++) {
        const f8 w = weight[session];
        const i8 end = offsets[session + 1];
        for (i8 at = offsets[session]; at < end; at++) {
            f8 satisfied = 0.0;
            looked[pair[at]] += w * examined[at];
            if (clicks[at]) {
                const f8 own = satisfaction[pair[at]], stops = own + (1.0 - own) * (1.0 - patience);
                satisfied = at + 1 < end ? (1.0 - onward[at]) * own / stops : own;
                enough[pair[at]] += w * satisfied;
            }
            if (at + 1 < end) {
                went += w * onward[at];
                unsatisfied += w * (examined[at] - satisfied);
            }
        }
    }
    totals[0] += went;
    totals[1] += unsatisfied;
}

/* Compute a sort key for each session: by query, with identical sessions next to each other. */
KERNEL(void, session_keys)(i8 s, i8 n, const i8 offsets[s + 1], const i8 query[s], const i8 pair[n],
                           const i8 position[n], const u1 clicks[n], u8 keys[restrict s]) {
    for (i8 session = 0; session < s; session++) {
        u8 hash = (u8)(offsets[session + 1] - offsets[session]);
        for (i8 at = offsets[session]; at < offsets[session + 1]; at++) {
            hash = (hash ^ ((u8)pair[at] * 2 + clicks[at])) * GOLDEN;
            hash = ((hash ^ (hash >> 32)) + (u8)position[at]) * 0xbf58476d1ce4e5b9;
            hash ^= hash >> 29;
        }
        keys[session] = ((u8)query[session] << 40) | (hash >> 24);
    }
}

/* Deduplicate sessions in sorted order: write each session that differs from its predecessor to `kept` (the return
   value is their number), and the multiplicities to `counts`. Hash collisions of keys are detected. */
KERNEL(i8, distinct_sessions)(i8 s, i8 n, const i8 offsets[s + 1], const i8 pair[n], const i8 position[n],
                              const u1 clicks[n], const u8 keys[s], const i8 order[s], i8 kept[restrict s],
                              f8 counts[restrict s]) {
    i8 found = 0;
    for (i8 i = 0; i < s; i++) {
        const i8 here = order[i], begin = offsets[here], length = offsets[here + 1] - begin;
        if (found > 0 && keys[here] == keys[kept[found - 1]]) {
            const i8 other = offsets[kept[found - 1]];
            if (offsets[kept[found - 1] + 1] - other == length &&
                !memcmp(pair + begin, pair + other, (size_t)length * sizeof(i8)) &&
                !memcmp(position + begin, position + other, (size_t)length * sizeof(i8)) &&
                !memcmp(clicks + begin, clicks + other, (size_t)length)) {
                counts[found - 1] += 1.0;
                continue;
            }
        }
        kept[found] = here;
        counts[found++] = 1.0;
    }
    return found;
}

/* Click probability at each impression of cascade users: given the clicks above, or unconditional. */
KERNEL(void, cascade_chances)(i8 s, i8 n, i8 p, i8 k, const i8 offsets[s + 1], const i8 pair[n], const u1 clicks[n],
                              const f8 attraction[p], const i8 kind[n], const f8 after[k], f8 skip, bool given,
                              i8 first, i8 last, f8 chance[n]) {
    for (i8 session = first; session < last; session++) {
        f8 looked = 1.0;
        for (i8 at = offsets[session]; at < offsets[session + 1]; at++) {
            const f8 a = attraction[pair[at]], click = looked * a, go = after[kind[at]];
            chance[at] = click;
            if (!given) looked *= a * go + (1.0 - a) * skip;
            else if (clicks[at]) looked = go;
            else looked = click < 1.0 ? skip * looked * (1.0 - a) / (1.0 - click) : 0.0;
        }
    }
}

/* Click probability at each impression if examination depends on the last click above: Σ over its position.
   `examination` has a row for each position and a column for the position of the last click, 0 if there was none. */
KERNEL(i8, browsing_chances)(i8 s, i8 n, i8 p, i8 k, const i8 offsets[s + 1], const i8 pair[n], const i8 position[n],
                             const f8 attraction[p], const f8 examination[k][k], i8 first, i8 last, f8 chance[n]) {
    const i8 longest = longest_query(last - first, offsets + first);
    f8 *latest = scratch(longest + 1, sizeof(f8)); /* P(the last click so far was at this position) */
    if (!latest) return OUT_OF_MEMORY;
    for (i8 session = first; session < last; session++) {
        const i8 begin = offsets[session], length = offsets[session + 1] - begin;
        latest[0] = 1.0;
        for (i8 r = 0; r < length; r++) {
            const f8 a = attraction[pair[begin + r]];
            const f8 *row = examination[position[begin + r]];
            f8 click = 0.0;
            for (i8 j = 0; j <= r; j++) {
                const f8 here = latest[j] * row[j ? position[begin + j - 1] : 0] * a;
                latest[j] -= here;
                click += here;
            }
            latest[r + 1] = click;
            chance[begin + r] = click;
        }
    }
    give_back(latest);
    return 0;
}
