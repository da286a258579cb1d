package ggml

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"
)

// shimError turns a filled gg_err into an error, nil when its code is 0.
func shimError(e *C.gg_err) error {
	if e.code == 0 {
		return nil
	}
	return fmt.Errorf("ggml: %s", strings.TrimSpace(C.GoString(&e.msg[0])))
}

// deviceTypes is indexed by enum ggml_backend_dev_type.
var deviceTypes = [...]string{"cpu", "gpu", "igpu", "accel", "meta"}

// Devices lists the devices of all linked backends, and those of the RPC
// servers that AddRPC added. The memory figures are asked for on each call; an
// RPC device is asked over the network. Without cgo the list is empty.
func Devices() []Device {
	var e C.gg_err
	n := int(C.gg_device_count(&e))
	devs := make([]Device, 0, n)
	for i := range n {
		var d C.gg_device
		if !C.gg_device_get(C.size_t(i), &d, &e) {
			continue
		}
		dev := Device{
			Name:        C.GoString(d.name),
			Description: C.GoString(d.description),
			Backend:     C.GoString(d.backend),
			Type:        fmt.Sprintf("type %d", int(d._type)),
			MemFree:     uint64(d.mem_free),
			MemTotal:    uint64(d.mem_total),
		}
		if t := int(d._type); t >= 0 && t < len(deviceTypes) {
			dev.Type = deviceTypes[t]
		}
		devs = append(devs, dev)
	}
	return devs
}

// addRPC registers the devices of a server that has just been checked.
func addRPC(endpoint string) error {
	cs := C.CString(endpoint)
	defer C.free(unsafe.Pointer(cs))
	var e C.gg_err
	if !C.gg_rpc_add(cs, &e) {
		return shimError(&e)
	}
	return nil
}

// ServeRPC serves devices until the process ends, one client at a time; it
// returns only with an error. ggml says on file descriptor 1 what the server
// does; that descriptor is made a pipe to s.Say, or another name of 2, for good.
func ServeRPC(s RPCServer) error {
	devices, err := s.check()
	if err != nil {
		return err
	}
	endpoint := C.CString(s.Endpoint)
	defer C.free(unsafe.Pointer(endpoint))
	var cache *C.char
	if s.CacheDir != "" {
		cache = C.CString(strings.TrimRight(s.CacheDir, "/") + "/")
		defer C.free(unsafe.Pointer(cache))
	}
	names := (*[rpcMaxDevices]*C.char)(C.calloc(rpcMaxDevices, C.size_t(unsafe.Sizeof(cache))))
	defer C.free(unsafe.Pointer(names))
	for i, d := range devices {
		names[i] = C.CString(d)
		defer C.free(unsafe.Pointer(names[i]))
	}
	said := os.Stderr
	if s.Say != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("rpc server %q: %w", s.Endpoint, err)
		}
		defer func() { _ = w.Close() }() // the lines are read for as long as the process lives
		go eachLine(r, s.Say)
		said = w
	}
	var e C.gg_err
	C.gg_rpc_serve(endpoint, cache, C.size_t(s.Threads), &names[0], C.size_t(len(devices)), C.int(said.Fd()), &e)
	return fmt.Errorf("rpc server %q: %w", s.Endpoint, shimError(&e))
}

// eachLine calls f with each line of r, a longer one than a page in parts.
func eachLine(r io.Reader, f func(string)) {
	br := bufio.NewReader(r)
	for {
		line, _, err := br.ReadLine()
		if err != nil {
			return
		}
		f(string(line))
	}
}

// CPUFeatures lists the instruction sets that the linked CPU backend was built
// with and uses, in ggml's order: AVX2, F16C, NEON, ... Without cgo it is empty.
func CPUFeatures() []string {
	var list []string
	add := func(has C.int, name string) {
		if has != 0 {
			list = append(list, name)
		}
	}
	add(C.ggml_cpu_has_sse3(), "SSE3")
	add(C.ggml_cpu_has_ssse3(), "SSSE3")
	add(C.ggml_cpu_has_avx(), "AVX")
	add(C.ggml_cpu_has_avx_vnni(), "AVX_VNNI")
	add(C.ggml_cpu_has_avx2(), "AVX2")
	add(C.ggml_cpu_has_f16c(), "F16C")
	add(C.ggml_cpu_has_fma(), "FMA")
	add(C.ggml_cpu_has_bmi2(), "BMI2")
	add(C.ggml_cpu_has_avx512(), "AVX512")
	add(C.ggml_cpu_has_avx512_vbmi(), "AVX512_VBMI")
	add(C.ggml_cpu_has_avx512_vnni(), "AVX512_VNNI")
	add(C.ggml_cpu_has_avx512_bf16(), "AVX512_BF16")
	add(C.ggml_cpu_has_amx_int8(), "AMX_INT8")
	add(C.ggml_cpu_has_neon(), "NEON")
	add(C.ggml_cpu_has_arm_fma(), "ARM_FMA")
	add(C.ggml_cpu_has_fp16_va(), "FP16_VA")
	add(C.ggml_cpu_has_matmul_int8(), "MATMUL_INT8")
	add(C.ggml_cpu_has_sve(), "SVE")
	add(C.ggml_cpu_has_dotprod(), "DOTPROD")
	add(C.ggml_cpu_has_sme(), "SME")
	add(C.ggml_cpu_has_riscv_v(), "RISCV_V")
	add(C.ggml_cpu_has_vsx(), "VSX")
	add(C.ggml_cpu_has_vxe(), "VXE")
	add(C.ggml_cpu_has_wasm_simd(), "WASM_SIMD")
	add(C.ggml_cpu_has_llamafile(), "LLAMAFILE")
	return list
}

// BuildInfo returns the pinned release, the version the library reports, and
// how it was built. Without cgo only the pin is set.
func BuildInfo() Build {
	var size C.size_t
	text := C.gg_build_info(&size)
	return Build{
		Pin:    pinVersion,
		Commit: pinCommit,
		GGML:   C.GoString(C.ggml_version()),
		Flags:  strings.TrimSpace(C.GoStringN(text, C.int(size))),
	}
}
