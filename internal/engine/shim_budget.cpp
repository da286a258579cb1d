// What a chat template may use (tools/engine/patches/0004-template-limits.patch).
#include "guard.hpp"

#include "jinja/limits.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

using namespace jinja;

// The steps come from the caller (chatbudget.go); memory is several times what llama.cpp's own templates were seen to need.
static constexpr size_t least_memory = (size_t) 64 << 20, memory_per_byte = 100;
static constexpr size_t most_nodes = 500 * 1000;
static constexpr size_t most_stack = (size_t) 16 << 20;
static constexpr size_t most_analysis = (size_t) 128 << 10;

static std::string describe(limits::limit met, size_t work, size_t memory, size_t stack) {
    switch (met) {
    case limits::WORK:   return "it has not come to an end after " + std::to_string(work) + " steps";
    case limits::MEMORY: return "it needs more than " + std::to_string(memory >> 20) + " MiB of memory";
    case limits::STACK:  return "it calls itself without end, or is nested deeper than " + std::to_string(stack >> 20) + " MiB of stack hold";
    case limits::NODES:  return "it has more than " + std::to_string(most_nodes) + " parts";
    case limits::OUTPUT: return "it writes more than " + std::to_string(most_analysis >> 10) + " KiB for a message of one word";
    default:             return "";
    }
}

// What the last one took, and might have.
static std::atomic<size_t> last_taken{ 0 }, last_allowed{ 0 };

size_t gl_template_steps(size_t * allowed) {
    *allowed = last_allowed;
    return last_taken;
}

void gl_on_budget(size_t input, size_t work, const std::function<void()> & f) {
    gl_on_big_stack([&] {
        const size_t stack  = std::min(gl_stack_size() / 4, most_stack); // what is freed recurses too
        const size_t memory = least_memory + memory_per_byte * input;
        limits::budget b{ work, memory, std::min(most_nodes, gl_stack_size() >> 8), (const char *) __builtin_frame_address(0) - stack };
        b.analysis = most_analysis;
        {
            struct scope {
                explicit scope(limits::budget * b) { limits::current = b; }
                ~scope() {
                    limits::current->clear();
                    limits::current = nullptr;
                }
            } active(&b);
            try {
                f();
            } catch (...) {
                if (b.met == limits::NONE) {
                    throw;
                }
            }
        }
        last_taken   = work - b.work;
        last_allowed = work;
        // llama.cpp's analysis takes any exception of a template for an answer.
        if (b.met != limits::NONE) {
            throw std::runtime_error(describe(b.met, work, memory, stack));
        }
    });
}
