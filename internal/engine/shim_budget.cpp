// What a chat template may use (tools/engine/patches/0004-template-limits.patch).
#include "guard.hpp"

#include "jinja/limits.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

using namespace jinja;

// The limits are several times what the most demanding of llama.cpp's own templates was seen to need (TestTemplateBudget): for a
// thousand turns of 1 kB gemma-4's, which goes through all messages for each and is applied three times, takes 620 million steps.
// A step is 10 ns on one core: a template without an end is stopped after 3 seconds, and another 10 for each MB of the conversation
// (TestTemplateBombs, TestTemplateLongBombs).
static constexpr size_t least_work = 250 * 1000 * 1000, work_per_byte = 850;
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

void gl_on_budget(size_t input, const std::function<void()> & f) {
    gl_on_big_stack([&] {
        const size_t stack  = std::min(gl_stack_size() / 4, most_stack); // what is freed recurses too
        const size_t work   = least_work + work_per_byte * input;
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
        // llama.cpp's analysis takes any exception of a template for an answer.
        if (b.met != limits::NONE) {
            throw std::runtime_error(describe(b.met, work, memory, stack));
        }
    });
}
