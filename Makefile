# gollama. `make` alone lists the targets.

GO      ?= go
MODEL   ?=
FUZZTIME ?= 10m
TAGS    ?=
PEERS    = llama-completion llama-bench llama-quantize llama-batched-bench llama-finetune llama-export-lora llama-perplexity \
	llama-imatrix llama-cvector-generator llama-mtmd-cli
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# Our own pages and the C++ runtime are in the binary; only libc stays outside. The tag leaves out cli's writer of man
# pages, which we do not use and which sets up a table of all HTML entities at each start; TAGS=cuda adds others.
LDFLAGS := $(STRIP) -X main.version=$(VERSION) -extldflags '-static-libstdc++ -static-libgcc'

.DEFAULT_GOAL := help
.PHONY: help setup engine build test test-nocgo lint bench peers demo release check-long clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install what the build needs (Debian as root), or say what is missing
	@tools/engine/setup.sh

engine: ## build the pinned llama.cpp libraries into the cache and link them as .engine
	@tools/engine/build.sh

build: engine ## build ./gollama
	$(GO) build -trimpath -tags 'urfave_cli_no_docs,$(TAGS)' -ldflags "$(LDFLAGS)" -o gollama ./cmd/gollama

test: engine ## run all tests
	$(GO) test -timeout 30m ./...
	cd tools && $(GO) test ./...

test-nocgo: ## run the tests of what is pure Go
	CGO_ENABLED=0 $(GO) test ./...

lint: engine .bin/staticcheck .bin/errcheck ## gofmt, go vet, staticcheck, errcheck, import rules
	@out=$$(gofmt -l cmd internal tools); [ -z "$$out" ] || { echo "gofmt -w these files:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	cd tools && $(GO) vet ./...
	.bin/staticcheck ./...
	cd tools && ../.bin/staticcheck ./...
	.bin/errcheck -ignoretests -exclude tools/errcheck.txt ./...
	$(GO) test ./internal/lint

.bin/staticcheck: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../.bin/staticcheck honnef.co/go/tools/cmd/staticcheck

.bin/errcheck: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../.bin/errcheck github.com/kisielk/errcheck

peers: ## build llama.cpp's own tools from the same pin, for golden files and benchmarks
	@tools/peers/build.sh

bench: build ## compare speed and memory with llama.cpp's tools, a few hours (BENCH=-quick: ten minutes; BENCH=-list)
	@PEERS="$(PEERS)" tools/peers/build.sh
	cd tools && $(GO) run ./peers/bench -o ../bench.jsonl -svg ../bench.svg $(BENCH)

demo: build ## print a story of the built-in model, or of another: make demo MODEL=path.gguf
	./gollama run -q $(if $(MODEL),-m "$(MODEL)") -p "Once upon a time" -n 200 --echo

release: ## make dist/*.tar.gz for other machines, and try it without a compiler (ENGINE_CPU=x86-64-v3)
	@tools/release.sh

check-long: build ## the slow checks, each with its time: PARTS="faults race" takes some, SHORT=1 a taste of each (tools/checklong.sh)
	@FUZZTIME=$(FUZZTIME) MODEL=$(MODEL) tools/checklong.sh $(PARTS)

clean: ## remove what was built here; the cache folder stays
	rm -rf gollama .bin .engine .peers
