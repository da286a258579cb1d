package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"

	"gollama/internal/engine/ggml"
)

var versionCommand = &command{
	name: "version", synopsis: "[--json]", noConfig: true,
	short: "Show the program's version, its engine, the devices and the CPU's features.",
	long: `Reads nothing. Writes a few lines, or one JSON object, to standard output.

Examples:
  gollama version
  gollama version --json
  gollama --version`,
}

var devicesCommand = &command{
	name: "devices", synopsis: "[--json]", noConfig: true,
	short: "List the devices that a model can run on.",
	long: `Reads nothing. Writes a line for each device: its name, as --device takes it,
its type, free and total memory, and what it is.

Examples:
  gollama devices
  gollama devices --json
  gollama devices --json | jq -r '.devices[].name'`,
}

func init() {
	versionCommand.run = runVersion
	devicesCommand.run = runDevices
}

type deviceInfo struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Backend     string `json:"backend"`
	Description string `json:"description"`
	MemFree     uint64 `json:"mem_free"`  // bytes
	MemTotal    uint64 `json:"mem_total"` // bytes
}

func deviceInfos() []deviceInfo {
	list := []deviceInfo{}
	for _, d := range ggml.Devices() {
		list = append(list, deviceInfo{Name: d.Name, Type: d.Type, Backend: d.Backend,
			Description: d.Description, MemFree: d.MemFree, MemTotal: d.MemTotal})
	}
	return list
}

// engineInfo is ggml.Build as JSON.
type engineInfo struct {
	Pin    string `json:"pin"`
	Commit string `json:"commit"`
	GGML   string `json:"ggml"`
	Flags  string `json:"flags"`
}

func runVersion(_ context.Context, e *env, o *options, _ []string) error {
	build := ggml.BuildInfo()
	info := struct {
		Type        string       `json:"type"`
		Version     string       `json:"version"`
		Go          string       `json:"go"`
		OS          string       `json:"os"`
		Arch        string       `json:"arch"`
		Engine      engineInfo   `json:"engine"`
		Threads     int          `json:"default_threads"`
		Devices     []deviceInfo `json:"devices"`
		CPUFeatures []string     `json:"cpu_features"`
	}{"version", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, engineInfo(build), ggml.DefaultThreads(), deviceInfos(), ggml.CPUFeatures()}
	if o.json {
		return json.NewEncoder(e.out).Encode(info)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "gollama %s\n", version)
	fmt.Fprintf(&b, "engine    llama.cpp %s (%s), ggml %s\n", build.Pin, build.Commit, build.GGML)
	fmt.Fprintf(&b, "built by  %s for %s/%s\n", info.Go, info.OS, info.Arch)
	fmt.Fprintf(&b, "cpu       %s\n", strings.Join(info.CPUFeatures, " "))
	fmt.Fprintf(&b, "threads   %d by default\n", info.Threads)
	for _, d := range info.Devices {
		fmt.Fprintf(&b, "device    %s\n", deviceLine(d))
	}
	return e.out.text(b.String())
}

func deviceLine(d deviceInfo) string {
	return fmt.Sprintf("%s (%s, %d MiB free of %d MiB): %s", d.Name, d.Type, d.MemFree>>20, d.MemTotal>>20, d.Description)
}

func runDevices(_ context.Context, e *env, o *options, _ []string) error {
	list := deviceInfos()
	if o.json {
		return json.NewEncoder(e.out).Encode(struct {
			Type    string       `json:"type"`
			Devices []deviceInfo `json:"devices"`
		}{"devices", list})
	}
	var b strings.Builder
	for _, d := range list {
		b.WriteString(deviceLine(d) + "\n")
	}
	return e.out.text(b.String())
}
