// Chat templates: messages to a prompt, and an output back to a message, by llama.cpp's common library.
#include "guard.hpp"

#include "chat-auto-parser.h"
#include "chat.h"
#include "json.h"
#include "common.h"
#include "llama.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <map>
#include <stdexcept>
#include <string>

// Of patch 0005: the parameters that grammars and parsers are made of, by the name of the function.
extern thread_local const std::map<std::string, common_json> * common_chat_tool_schemas;

struct gl_template {
    common_chat_templates_ptr ptr;
    bool plain = false; // llama.cpp has no code of its own for it: what Jinja writes is the prompt
};

struct gl_chat {
    gl_template main;
    gl_template tools; // used when there are tools; ptr may be null
    bool builtin = false; // one that llama.cpp has in C++, not in Jinja
};

struct gl_chat_parser {
    common_chat_parser_params params;
};

// The letters of strftime that give a text of their own; %% apart.
static const char clock_letters[] = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ";

// The templates' strftime_now reads the clock, and nothing sets it. This macro of the same name
// stands before the template and formats gl_now, a table of the texts of all letters. Its line end
// goes with the block before it, as in every template, so that the first line stays the first.
// Where a template is only analysed there is no table, and the format stands for itself.
static std::string with_clock(const std::string & source) {
    if (source.find("strftime_now") == std::string::npos) {
        return source;
    }
    std::string macro = "{%- macro strftime_now(f) %}{%- if gl_now is defined %}{{- f | replace('%%', '\x01')";
    for (const char * c = clock_letters; *c; c++) {
        for (const char * flag : { "", "-" }) {
            macro += std::string(" | replace('%") + flag + *c + "', gl_now['" + flag + *c + "'])";
        }
    }
    return macro + " | replace('\x01', '%') }}{%- else %}{{- f }}{%- endif %}{%- endmacro %}\n" + source;
}

static std::string clock_table(std::time_t now) {
    std::tm tm {};
    localtime_r(&now, &tm);
    json table = json::object();
    for (const char * c = clock_letters; *c; c++) {
        for (const char * flag : { "", "-" }) {
            const std::string code = std::string(flag) + *c;
            char buf[100];
            const size_t n = strftime(buf, sizeof(buf), ("%" + code).c_str(), &tm);
            table[code] = std::string(buf, n);
        }
    }
    return table.dump();
}

static std::string format_time(std::time_t now, const char * format) {
    std::tm tm {};
    localtime_r(&now, &tm);
    char buf[100];
    return std::string(buf, strftime(buf, sizeof(buf), format, &tm));
}

// Whether common_chat_templates_apply goes the way of most templates with this one: Jinja for the
// prompt, and a parser made by comparing what the template writes.
static bool is_plain(const common_chat_template & t) {
    autoparser::generation_params params;
    params.messages = json::array({ json { { "role", "user" }, { "content", "x" } } });
    try {
        return !common_chat_try_specialized_template(t, t.source(), params).has_value();
    } catch (const std::exception &) {
        return false;
    }
}

static gl_template compile(const struct llama_model * m, const std::string & source, const char * bos, const char * eos) {
    gl_template t;
    if (source != "chatml") {
        // common_chat_templates_init rethrows its errors by value, without their text. This one throws them whole.
        t.plain = is_plain(common_chat_template(source, bos, eos));
    }
    t.ptr = common_chat_templates_init(m, source, bos, eos);
    return t;
}

// A template that is nested deep is a tree that is freed from the leaves. Where there is no memory for a thread it stays: this is
// called while an error of that kind is on its way.
void gl_chat_free(gl_chat * c) {
    try {
        gl_on_big_stack([&] { delete c; });
    } catch (const std::exception &) {
    }
}

gl_chat * gl_chat_new(const struct llama_model * m, const char * source, const char * tools, bool builtin,
                      const char * bos, const char * eos, size_t work, gl_err * err) {
    return guard(err, (gl_chat *) nullptr, [&] {
        std::unique_ptr<gl_chat, void (*)(gl_chat *)> c(new gl_chat, gl_chat_free);
        c->builtin = builtin;
        // A template is parsed and applied to short conversations a few dozen times, which is little for each of its bytes.
        gl_on_budget((strlen(source) + strlen(tools)) / 16, work, [&] {
            if (builtin) {
                c->main.ptr = common_chat_templates_init(m, source, bos, eos);
                return;
            }
            c->main = compile(m, with_clock(source), bos, eos);
            if (*tools) {
                c->tools = compile(m, with_clock(tools), bos, eos);
            }
        });
        return c.release();
    });
}

int gl_chat_builtin(const char ** out, int n) { return llama_chat_builtin_templates(out, n); }

char * gl_chat_caps(const gl_chat * c, gl_err * err) {
    return guard(err, (char *) nullptr, [&] {
        json caps = json::object();
        gl_on_big_stack([&] {
            for (const auto & kv : common_chat_templates_get_caps((c->tools.ptr ? c->tools : c->main).ptr.get())) {
                caps[kv.first] = kv.second;
            }
        });
        return strdup(caps.dump().c_str());
    });
}

static common_chat_templates_inputs read_input(const json & in) {
    common_chat_templates_inputs o;
    o.messages              = common_chat_msgs_parse_oaicompat(in.at("messages"));
    o.add_generation_prompt = in.value("add_generation_prompt", false);
    o.parallel_tool_calls   = in.value("parallel_tool_calls", false);
    o.enable_thinking       = in.value("enable_thinking", true);
    o.json_schema           = in.value("json_schema", "");
    o.grammar               = in.value("grammar", "");
    o.tool_choice           = common_chat_tool_choice_parse_oaicompat(in.value("tool_choice", "auto"));
    o.reasoning_format      = common_reasoning_format_from_name(in.value("reasoning_format", "none"));
    if (in.contains("tools")) {
        o.tools = common_chat_tools_parse_oaicompat(in.at("tools"));
    }
    if (in.contains("continue")) {
        const std::string how = in.at("continue");
        o.continue_final_message = how == "auto" ? COMMON_CHAT_CONTINUATION_AUTO :
                                   how == "content" ? COMMON_CHAT_CONTINUATION_CONTENT : COMMON_CHAT_CONTINUATION_REASONING;
    }
    const std::time_t now = in.at("now").get<int64_t>();
    // Both are made from the clock in common_chat_extra_context, before what is given here.
    o.chat_template_kwargs["datetime"]    = json::make(format_time(now, "%b %d %Y")).dump();
    o.chat_template_kwargs["date_string"] = json::make(format_time(now, "%d %b %Y")).dump();
    o.chat_template_kwargs["gl_now"]      = clock_table(now);
    o.now = std::chrono::system_clock::from_time_t(now);
    if (in.value("prompt_only", false)) {
        o.force_pure_content = true;
    }
    if (in.contains("kwargs")) {
        for (const auto & kv : in.at("kwargs").items()) {
            o.chat_template_kwargs[kv.key()] = kv.value().dump();
        }
    }
    return o;
}

static json write_prompt(const common_chat_params & p) {
    json triggers = json::array(), ends = json::array(), preserved = json::array(), stops = json::array();
    for (const auto & t : p.grammar_triggers) {
        triggers.push_back(json { { "type", (int) t.type }, { "value", t.value } });
    }
    for (const auto & s : p.thinking_end_tags) { ends.push_back(s); }
    for (const auto & s : p.preserved_tokens) { preserved.push_back(s); }
    for (const auto & s : p.additional_stops) { stops.push_back(s); }
    return json {
        { "format", (int) p.format }, { "prompt", p.prompt }, { "generation_prompt", p.generation_prompt },
        { "grammar", p.grammar }, { "grammar_lazy", p.grammar_lazy }, { "grammar_triggers", triggers },
        { "supports_thinking", p.supports_thinking }, { "thinking_start", p.thinking_start_tag }, { "thinking_ends", ends },
        { "preserved_tokens", preserved }, { "stops", stops }, { "parser", p.parser },
    };
}

char * gl_chat_apply(const gl_chat * c, const char * input, size_t work, gl_err * err) {
    return guard(err, (char *) nullptr, [&] {
        std::string out;
        gl_on_budget(strlen(input), work, [&] {
            const json wire = json::parse(input);
            std::map<std::string, json> schemas;
            if (wire.contains("tool_schemas")) {
                for (const auto & kv : wire.at("tool_schemas").items()) {
                    schemas[kv.key()] = kv.value();
                }
            }
            common_chat_tool_schemas = &schemas; // this thread lives as long as this function

            auto in      = read_input(wire);
            in.use_jinja = !c->builtin;
            const auto & t = c->tools.ptr && !in.tools.empty() ? c->tools : c->main;
            // This leaves out the parser, whose making takes 10 to 100 times as long as the prompt.
            // It also leaves out a continuation, and what llama.cpp does to messages for some templates.
            in.force_pure_content = in.force_pure_content && t.plain && in.continue_final_message == COMMON_CHAT_CONTINUATION_NONE;
            out = write_prompt(common_chat_templates_apply(t.ptr.get(), in)).dump();
        });
        return strdup(out.c_str());
    });
}

// As the server sets them (server-schema.cpp, server-common.cpp).
void gl_read_answer(common_params_sampling & s, const llama_vocab * v, const char * text) {
    const json in       = json::parse(text);
    // Some tokenizers put a space before a text, which it does not have where the model writes it.
    const auto tokens = [&](const std::string & t) {
        auto ids = common_tokenize(v, t, false, true);
        if (!ids.empty() && t[0] != ' ' && common_token_to_piece(v, ids[0]) == " ") {
            ids.erase(ids.begin());
        }
        return ids;
    };
    s.generation_prompt = in.value("generation_prompt", "");
    s.grammar_lazy      = in.value("grammar_lazy", false);
    if (in.value("grammar_of_chat", false) && !s.grammar.empty()) {
        s.grammar.type = COMMON_GRAMMAR_TYPE_TOOL_CALLS;
    }
    if (in.contains("grammar_triggers")) {
        for (const auto & t : in.at("grammar_triggers")) {
            common_grammar_trigger trigger;
            trigger.type  = (common_grammar_trigger_type) t.at("type").get<int>();
            trigger.value = t.at("value");
            if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN || trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) {
                const auto ids = tokens(trigger.value);
                trigger.type   = COMMON_GRAMMAR_TRIGGER_TYPE_WORD;
                if (ids.size() == 1) {
                    trigger.type  = COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN;
                    trigger.token = ids[0];
                }
            }
            s.grammar_triggers.push_back(trigger);
        }
    }
    const std::string start = in.value("reasoning_start", "");
    if (start.empty()) {
        return;
    }
    // Where the prompt ends in <think> and a line end, the budget's sampler counts the line end: with a budget of 0 as the
    // first token that it was to force, so that it forces none. Only a grammar needs to see it.
    if (s.grammar.empty() || s.grammar_lazy || !in.value("grammar_of_chat", false)) {
        const size_t last = s.generation_prompt.find_last_not_of(" \n");
        if (last != std::string::npos && last + 1 >= start.size() && s.generation_prompt.compare(last + 1 - start.size(), start.size(), start) == 0) {
            s.generation_prompt.resize(last + 1);
        }
    }
    s.reasoning_budget_tokens  = in.value("reasoning_budget", -1);
    s.reasoning_budget_message = in.value("reasoning_message", "");
    s.reasoning_budget_start   = tokens(start);
    for (const auto & end : in.at("reasoning_ends")) {
        s.reasoning_budget_end.push_back(tokens(end.get<std::string>()));
    }
    if (s.reasoning_budget_end.empty()) {
        return;
    }
    const auto end            = s.reasoning_budget_end.front();
    s.reasoning_budget_forced = tokens(s.reasoning_budget_message);
    s.reasoning_budget_forced.insert(s.reasoning_budget_forced.end(), end.begin(), end.end());
}

gl_chat_parser * gl_chat_parser_new(const char * input, gl_err * err) {
    return guard(err, (gl_chat_parser *) nullptr, [&] {
        auto p = std::make_unique<gl_chat_parser>();
        gl_on_big_stack([&] {
            const json in = json::parse(input);
            p->params.format               = (common_chat_format) in.at("format").get<int>();
            p->params.generation_prompt    = in.value("generation_prompt", "");
            p->params.reasoning_format     = common_reasoning_format_from_name(in.value("reasoning_format", "none"));
            p->params.parse_tool_calls     = in.value("parse_tool_calls", true);
            const std::string parser = in.value("parser", "");
            if (!parser.empty()) {
                p->params.parser.load(parser);
            }
        });
        return p.release();
    });
}

void gl_chat_parser_free(gl_chat_parser * p) { delete p; }

char * gl_chat_parse(const gl_chat_parser * p, const char * text, size_t n, bool partial, gl_err * err) {
    return guard(err, (char *) nullptr, [&] {
        std::string out;
        gl_on_big_stack([&] {
            const auto msg = common_chat_parse(std::string(text, n), partial, p->params);
            out = msg.to_json_oaicompat(true).dump_safe();
        });
        return strdup(out.c_str());
    });
}
