// The tables that the tokenizers split text by.
#include "shim.h"

#include <cstdint>

// From src/unicode.h, which is not installed. There the flags are bit fields of one uint16_t.
struct unicode_cpt_flags {
    uint16_t bits;
    unicode_cpt_flags(const uint16_t flags = 0) : bits(flags) {}
};
unicode_cpt_flags unicode_cpt_flags_from_cpt(uint32_t cpt);
uint32_t          unicode_tolower(uint32_t cpt);

void gl_unicode(uint32_t first, int n, uint16_t * flags, uint32_t * lower) {
    for (int i = 0; i < n; i++) {
        flags[i] = unicode_cpt_flags_from_cpt(first + i).bits;
        lower[i] = unicode_tolower(first + i);
    }
}
