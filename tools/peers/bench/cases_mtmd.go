package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
)

const encodeTime = "encode" // ms, of an image by the projector

// mtmdCases compares a folder of images with a process of llama-mtmd-cli for each, and the time of the encoder.
func mtmdCases(b *bench) []contest {
	return []contest{b.folderCase(), b.encodeCase()}
}

const nImages = 100

var mtmdArgs = []string{"-t", "2", "--temp", "0", "--ignore-eos", "-c", "1024", "--chat-template", "chatml"}

func (b *bench) folderCase() contest {
	procs := b.size(20, 5)
	return contest{name: "mtmd/100-images", quick: true, rounds: b.size(3, 1),
		about: fmt.Sprintf("a folder of %d images, 16 tokens about each, 135M, 2 threads; %d processes of llama-mtmd-cli, times %d", nImages, procs, nImages/procs),
		setup: func(ctx context.Context) (*trial, error) {
			model, err := b.model(ctx, "135m-q4_k_m")
			if err != nil {
				return nil, err
			}
			mmproj, err := b.projector(ctx, "mmproj-576-tiny", "-embd", "576")
			if err != nil {
				return nil, err
			}
			dir, err := b.images(nImages)
			args := append([]string{"-m", model, "--mmproj", mmproj, "-p", "What is this?", "-n", "16"}, mtmdArgs...)
			const peer = "llama-mtmd-cli"
			folder := b.own(append([]string{"mtmd", "-q", "--dir", dir, "-o", b.tmp("captions.jsonl")}, args...)...)
			return turns([]measure{faster(peer, 10)},
				player{ours, func(ctx context.Context) (outcome, error) {
					if err := os.Remove(b.tmp("captions.jsonl")); err != nil && !errors.Is(err, fs.ErrNotExist) {
						return nil, err // what a round left is in the way: results are not overwritten
					}
					return folder.run(ctx)
				}},
				player{peer, func(ctx context.Context) (outcome, error) {
					total := outcome{}
					for i := range procs {
						p, err := execute(ctx, b.peer(peer), append(args, "--image", imageName(dir, i))...)
						if err != nil {
							return nil, err
						}
						total[wall] += p.wall / 1000 * nImages / float64(procs)
						total[cpu] += p.cpu / 1000 * nImages / float64(procs)
					}
					return total, nil
				}}), err
		}}
}

// encodeCase compares the time of the encoder with that which llama-mtmd-cli tells, which calls libmtmd and nothing else.
func (b *bench) encodeCase() contest {
	return contest{name: "mtmd/encode", quick: true, about: "a vision tower of 12 layers of 384 values, 576 patches, 2 threads",
		setup: func(ctx context.Context) (*trial, error) {
			model, err := b.model(ctx, "135m-q4_k_m")
			if err != nil {
				return nil, err
			}
			mmproj, err := b.projector(ctx, "mmproj-576-tower", "-embd", "576", "-vision-embd", "384", "-vision-layers", "12", "-vision-size", "336", "-vision-patch", "14")
			if err != nil {
				return nil, err
			}
			dir, err := b.images(1)
			args := append([]string{"-m", model, "--mmproj", mmproj, "--image", imageName(dir, 0), "-p", "What is this?", "-n", "1"}, mtmdArgs...)
			const peer = "llama-mtmd-cli"
			return turns([]measure{compare("encoder", encodeTime, "ms", amount, peer, 1.03)},
				player{ours, func(ctx context.Context) (outcome, error) {
					return encodeOurs(ctx, b.gollama, append([]string{"mtmd", "-q", "--format", "json"}, args...))
				}},
				player{peer, func(ctx context.Context) (outcome, error) { return encodePeer(ctx, b.peer(peer), args) }}), err
		}}
}

// encodeOurs reads the time of the encoder from gollama's result.
func encodeOurs(ctx context.Context, program string, args []string) (outcome, error) {
	p, err := start(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	var line struct {
		Cache struct {
			MS float64 `json:"encode_ms"`
		} `json:"cache"`
	}
	if err := json.Unmarshal(p.stdout, &line); err != nil || line.Cache.MS == 0 {
		return nil, fmt.Errorf("no time of the encoder in %q: %w", tail(p.stdout, 600), err)
	}
	o := p.outcome()
	o[encodeTime] = line.Cache.MS
	return o, nil
}

// encodedLine matches what llama-mtmd-cli says of the media that it encodes together.
var encodedLine = regexp.MustCompile(`encoding done in (\d+) ms`)

func encodePeer(ctx context.Context, program string, args []string) (outcome, error) {
	p, err := execute(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	o := p.outcome()
	for s := bufio.NewScanner(bytes.NewReader(append(p.stderr, p.stdout...))); s.Scan(); {
		if m := encodedLine.FindSubmatch(s.Bytes()); m != nil {
			o[encodeTime] += number(m[1])
		}
	}
	if o[encodeTime] == 0 {
		return nil, errors.New("it does not say how long it encoded")
	}
	return o, nil
}
