// Rows of quantized weights to float32, with vectors: part of kernels_body.hpp.
//
// ggml's own conversions are compiled for any CPU and take a value at a time;
// a product of a few hundred tokens spends a seventh of its time in them. Here
// are the types that files hold most. Every product below is exact in float32
// (a half has 11 bits, a scale at most 7, a value at most 8 less where there
// is a scale), so the values are ggml's to the bit, multiply-add or not.
// Layouts: ggml/src/ggml-common.h of the pin.

#ifdef VU8 // one instruction; compilers take the bytes out one by one for the other form
INL vi ld_u8(const uint8_t * p) { return (vi) VU8(p); }
INL vi ld_s8(const int8_t * p) { return (vi) VS8(p); }
#else
typedef uint8_t vu8 __attribute__((vector_size(VW)));
typedef int8_t  vs8 __attribute__((vector_size(VW)));

INL vi ld_u8(const uint8_t * p) { vu8 v; __builtin_memcpy(&v, p, sizeof v); return __builtin_convertvector(v, vi); }
INL vi ld_s8(const int8_t * p) { vs8 v; __builtin_memcpy(&v, p, sizeof v); return __builtin_convertvector(v, vi); }
#endif
INL vf to_f(vi v) { return __builtin_convertvector(v, vf); }

// The half at p. Moving its bits up makes a float that is 2^112 too small,
// which is exact for subnormal halves too.
INL float half_at(const uint8_t * p) {
    uint16_t h;
    __builtin_memcpy(&h, p, sizeof h);
    uint32_t u = (uint32_t) (h & 0x7fff) << 13;
    float f;
    __builtin_memcpy(&f, &u, sizeof f);
    f *= 0x1p112f;
    if ((h & 0x7c00) == 0x7c00) { // infinite or no number
        u |= 0x7f800000;
        __builtin_memcpy(&f, &u, sizeof f);
    }
    return h & 0x8000 ? -f : f;
}

static void widen_q4_0(const void * src, float * dst, int64_t n) {
    const uint8_t * b = (const uint8_t *) src;
    for (int64_t i = 0; i < n; i += 32, b += 18, dst += 32) {
        const float d = half_at(b);
        for (int j = 0; j < 16; j += VW) {
            vi q = ld_u8(b + 2 + j);
            st(dst + j, to_f((q & 15) - 8) * d);
            st(dst + 16 + j, to_f((q >> 4) - 8) * d);
        }
    }
}

static void widen_q5_0(const void * src, float * dst, int64_t n) {
    vi lane; // 1 << lane
    for (int i = 0; i < VW; i++) lane[i] = 1 << i;
    const uint8_t * b = (const uint8_t *) src;
    for (int64_t i = 0; i < n; i += 32, b += 22, dst += 32) {
        const float d = half_at(b);
        uint32_t h;
        __builtin_memcpy(&h, b + 2, sizeof h);
        for (int j = 0; j < 16; j += VW) {
            vi q = ld_u8(b + 6 + j);
            vi lo = ((vi) {} + (int32_t) (h >> j)) & lane, hi = ((vi) {} + (int32_t) (h >> (16 + j))) & lane;
            st(dst + j, to_f((q & 15) + ((lo != 0) & 16) - 16) * d);
            st(dst + 16 + j, to_f((q >> 4) + ((hi != 0) & 16) - 16) * d);
        }
    }
}

static void widen_q8_0(const void * src, float * dst, int64_t n) {
    const uint8_t * b = (const uint8_t *) src;
    for (int64_t i = 0; i < n; i += 32, b += 34, dst += 32) {
        const float d = half_at(b);
        for (int j = 0; j < 32; j += VW) st(dst + j, to_f(ld_s8((const int8_t *) b + 2 + j)) * d);
    }
}

// Scale and minimum of part i of 8 in a block of Q4_K or Q5_K.
INL void scale_min(int i, const uint8_t * s, int * scale, int * min) {
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
        *min = s[i + 4] >> 4 | (s[i] >> 6) << 4;
    }
}

// Q4_K, and Q5_K, whose fifth bits lie in 32 bytes before the others.
template <bool FIVE>
static void widen_k45(const void * src, float * dst, int64_t n) {
    const uint8_t * b = (const uint8_t *) src;
    for (int64_t i = 0; i < n; i += 256, b += FIVE ? 176 : 144) {
        const float d = half_at(b), dmin = half_at(b + 2);
        const uint8_t * s = b + 4, * high = b + 16, * q = FIVE ? b + 48 : b + 16;
        for (int j = 0; j < 8; j += 2, q += 32, dst += 64) {
            int s1, m1, s2, m2;
            scale_min(j, s, &s1, &m1);
            scale_min(j + 1, s, &s2, &m2);
            const float d1 = d * s1, d2 = d * s2, n1 = dmin * m1, n2 = dmin * m2;
            for (int k = 0; k < 32; k += VW) {
                vi v = ld_u8(q + k), lo = v & 15, hi = v >> 4;
                if (FIVE) {
                    vi h = ld_u8(high + k) >> j;
                    lo |= (h & 1) << 4;
                    hi |= (h & 2) << 3;
                }
                st(dst + k, to_f(lo) * d1 - n1);
                st(dst + 32 + k, to_f(hi) * d2 - n2);
            }
        }
    }
}

static void widen_q6_k(const void * src, float * dst, int64_t n) {
    const uint8_t * b = (const uint8_t *) src;
    for (int64_t i = 0; i < n; i += 256, b += 210) {
        const float d = half_at(b + 208);
        for (int part = 0; part < 2; part++, dst += 128) {
            const uint8_t * ql = b + 64 * part, * qh = b + 128 + 32 * part;
            const int8_t * s = (const int8_t *) b + 192 + 8 * part;
            for (int k = 0; k < 32; k += VW) {
                const int8_t * sk = s + k / 16;
                vi a = ld_u8(ql + k), c = ld_u8(ql + 32 + k), h = ld_u8(qh + k);
                st(dst + k, to_f(((a & 15) | (h & 3) << 4) - 32) * (d * sk[0]));
                st(dst + 32 + k, to_f(((c & 15) | (h & 12) << 2) - 32) * (d * sk[2]));
                st(dst + 64 + k, to_f((a >> 4 | (h & 48)) - 32) * (d * sk[4]));
                st(dst + 96 + k, to_f((c >> 4 | (h & 192) >> 2) - 32) * (d * sk[6]));
            }
        }
    }
}
