/* Random sparse projections (p3 section 2.3 and 3; p2 section 6.2), drawn from a key: projections.py is the reference implementation, number by
   number. A draw costs its non-zeros, not the number of features. */
#ifndef HFOREST_ATOMS_H
#define HFOREST_ATOMS_H
#include <stdint.h>

#include "core/entries.h"
#include "core/simd/philox.h"

enum {
    HF_ATOMS = 16, /* that are drawn at once, at most */
    HF_KNOWN = 4   /* draws of an atom that are known beforehand, at most */
};

/* Keys of up to HF_ATOMS atoms that a node draws, and their first draws: of atom i the one with counter c is at
   c << log_room | i. Of HF_ATOM_SPARSE the entries too, entry e at e * HF_ATOMS + i, where they are few. */
typedef struct {
    uint64_t key[HF_ATOMS];
    uint32_t word[4][HF_KNOWN * HF_ATOMS];
    int log_room;
    uint32_t n_known;
    int32_t count[HF_ATOMS]; /* 0: to be drawn */
    uint32_t index[HF_READY * HF_ATOMS];
    float weight[HF_READY * HF_ATOMS];
} hf_atom_draws;

/* An atom to be drawn: by its key, or as one of `draws`. */
typedef struct {
    uint64_t key;
    const hf_atom_draws *draws; /* or NULL */
    int at;
} hf_atom;

HF_INLINE hf_draw hf_draw_entry(hf_atom atom, uint32_t counter) {
    const hf_atom_draws *draws = atom.draws;
    if (!draws || counter >= draws->n_known) return hf_philox(atom.key, counter, HF_STREAM_ENTRY);
    const uint32_t at = counter << draws->log_room | (uint32_t)atom.at;
    const hf_draw draw = {{draws->word[0][at], draws->word[1][at], draws->word[2][at], draws->word[3][at]}};
    return draw;
}

static hf_patch hf_draw_patch(const hf_atoms *a, hf_atom atom) {
    return hf_patch_of(a, hf_draw_entry(atom, 0), hf_draw_entry(atom, 1));
}

/* Fills a->up_to with the sums that hf_draw_atom compares a draw with. */
static void hf_fill_up_to(hf_atoms *a) {
    double p = a->none, sum = p;
    for (int count = 0; count <= HF_READY; ++count) {
        a->up_to[count] = sum;
        p = p * (a->rate / (double)(count + 1));
        sum += p;
    }
}

/* Entries of an atom; how many they are, at most a->most. */
static int64_t hf_draw_atom(const hf_atoms *a, hf_atom atom, uint32_t *index, float *weight) {
    if (a->kind == HF_ATOM_PATCH) return hf_patch_entries(a, hf_draw_patch(a, atom), index, weight);
    if (atom.draws && atom.draws->n_known && atom.draws->count[atom.at]) {
        for (int e = 0; e < HF_READY; ++e) {
            index[e] = atom.draws->index[e * HF_ATOMS + atom.at];
            weight[e] = atom.draws->weight[e * HF_ATOMS + atom.at];
        }
        return atom.draws->count[atom.at];
    }
    return hf_draw_entries(a, atom.key, hf_draw_entry(atom, 0), index, weight);
}

/* About how many entries an atom has. */
HF_INLINE double hf_mean_entries(const hf_atoms *a) {
    if (a->kind != HF_ATOM_PATCH) return a->kind == HF_ATOM_SPARSE ? a->rate : a->most;
    double n = 1;
    for (int i = 0; i < HF_ATOM_AXES; ++i) n *= (double)(a->low[i] + a->high[i]) / 2;
    return n;
}

/* How many draws of an atom are worth knowing beforehand. */
HF_INLINE uint32_t hf_n_known(const hf_atoms *a) {
    return a->kind == HF_ATOM_PATCH ? 2 : a->kind == HF_ATOM_SPARSE ? HF_KNOWN : 1;
}

#if HF_X86
/* hf_unit of eight draws. */
HF_AVX512_CODE HF_INLINE __m512d hf_unit_8(__m256i word0, __m256i word1) {
    const __m512i key =
        _mm512_or_si512(_mm512_cvtepu32_epi64(word0), _mm512_slli_epi64(_mm512_cvtepu32_epi64(word1), 32));
    return _mm512_mul_pd(_mm512_cvtepi64_pd(_mm512_srli_epi64(key, 11)), _mm512_set1_pd(0x1p-53));
}

/* hf_below of sixteen. */
HF_AVX512_CODE HF_INLINE __m512i hf_below_16(__m512i word, __m512i stop) {
    const __m512i even = _mm512_mul_epu32(word, stop);
    const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(word, 32), _mm512_srli_epi64(stop, 32));
    return _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
}

/* Entries of sparse atoms as hf_draw_atom has them, of those that have no more than are ready. */
HF_AVX512_CODE HF_INLINE void hf_draw_sparse(const hf_atoms *a, hf_atom_draws *draws) {
    const __m512i one = _mm512_set1_epi32(1), n_features = _mm512_set1_epi32((int32_t)a->n_features);
    const __m512i word0 = _mm512_loadu_si512(draws->word[0]), word1 = _mm512_loadu_si512(draws->word[1]);
    const __m512d low = hf_unit_8(_mm512_castsi512_si256(word0), _mm512_castsi512_si256(word1));
    const __m512d high = hf_unit_8(_mm512_extracti64x4_epi64(word0, 1), _mm512_extracti64x4_epi64(word1, 1));
    __m512i count = _mm512_setzero_si512();
    for (int i = 0; i <= HF_READY; ++i) {
        const __m512d sum = _mm512_set1_pd(a->up_to[i]);
        const __mmask16 more = (__mmask16)(_mm512_cmp_pd_mask(low, sum, _CMP_GE_OQ) |
                                           _mm512_cmp_pd_mask(high, sum, _CMP_GE_OQ) << 8);
        count = _mm512_mask_add_epi32(count, more, count, one);
    }
    count = _mm512_max_epi32(count, one);
    __m512i index[HF_READY];
    for (int e = 0; e < HF_READY; ++e) {
        /* Floyd's sampling without replacement. */
        const int at = (1 + e) << draws->log_room;
        const __m512i last = _mm512_add_epi32(_mm512_sub_epi32(n_features, count), _mm512_set1_epi32(e));
        index[e] = hf_below_16(_mm512_loadu_si512(draws->word[0] + at), _mm512_add_epi32(last, one));
        __mmask16 taken = 0;
        for (int j = 0; j < e; ++j) taken |= _mm512_cmpeq_epi32_mask(index[e], index[j]);
        index[e] = _mm512_mask_mov_epi32(index[e], taken, last);
        const __mmask16 adds = _mm512_test_epi32_mask(_mm512_loadu_si512(draws->word[1] + at), one);
        _mm512_storeu_si512(draws->index + e * HF_ATOMS, index[e]);
        _mm512_storeu_ps(
            draws->weight + e * HF_ATOMS, _mm512_mask_blend_ps(adds, _mm512_set1_ps(-1), _mm512_set1_ps(1))
        );
    }
    const __mmask16 ready = _mm512_cmple_epi32_mask(count, _mm512_set1_epi32(HF_READY));
    _mm512_storeu_si512(draws->count, _mm512_maskz_mov_epi32(ready, count));
}

/* Draws the atoms `first` to first + n - 1 of a node, n <= HF_ATOMS: a lane is a draw. */
HF_AVX512_CODE static void hf_draw_ahead(
    const hf_atoms *a, uint64_t key, uint32_t first, int n, hf_atom_draws *draws
) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i number = _mm512_add_epi32(lane, _mm512_set1_epi32((int32_t)first));
    __m512i own[4];
    hf_philox_16(
        _mm512_set1_epi32((int32_t)(uint32_t)key), _mm512_set1_epi32((int32_t)(key >> 32)), number, HF_STREAM_ATOM, own
    );
    const __m512i low_half = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_storeu_si512(draws->key, _mm512_permutex2var_epi32(own[0], low_half, own[1]));
    _mm512_storeu_si512(
        draws->key + 8, _mm512_permutex2var_epi32(own[0], _mm512_add_epi32(low_half, _mm512_set1_epi32(8)), own[1])
    );
    draws->n_known = hf_n_known(a);
    draws->log_room = n <= 4 ? 2 : n <= 8 ? 3 : 4;
    const __m512i atom = _mm512_and_si512(lane, _mm512_set1_epi32((1 << draws->log_room) - 1));
    const __m512i low = _mm512_permutexvar_epi32(atom, own[0]), high = _mm512_permutexvar_epi32(atom, own[1]);
    const __m128i by = _mm_cvtsi32_si128(draws->log_room);
    for (int32_t at = 0; at < (int32_t)(draws->n_known << draws->log_room); at += 16) {
        __m512i word[4];
        const __m512i counter = _mm512_srl_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(at)), by);
        hf_philox_16(low, high, counter, HF_STREAM_ENTRY, word);
        for (int w = 0; w < 4; ++w) _mm512_storeu_si512(draws->word[w] + at, word[w]);
    }
    if (a->kind == HF_ATOM_SPARSE && a->most > HF_READY) hf_draw_sparse(a, draws);
    else _mm512_storeu_si512(draws->count, _mm512_setzero_si512());
}
#endif

/* The same for a node's atoms number `first` to first + n - 1, by whatever way the path has. */
static void hf_draw_atoms(int path, const hf_atoms *a, uint64_t key, uint64_t first, int n, hf_atom_draws *draws) {
#if HF_X86
    if (path == HF_PATH_AVX512) {
        hf_draw_ahead(a, key, (uint32_t)first, n, draws);
        return;
    }
#endif
    draws->n_known = 0;
    for (int i = 0; i < n; ++i) draws->key[i] = hf_atom_key(key, first + (uint64_t)i);
}

#endif
