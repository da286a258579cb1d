package ggml

import (
	"testing"
	"testing/fstest"
)

func TestAvailableMemory(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	info := file("MemTotal: 1000 kB\nMemAvailable:    500 kB\n")
	for name, tt := range map[string]struct {
		fs   fstest.MapFS
		want uint64
	}{
		"no proc":  {fstest.MapFS{}, 0},
		"no group": {fstest.MapFS{"proc/meminfo": info}, 500 << 10},
		"v2": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("0::/a/b\n"),
			"sys/fs/cgroup/a/memory.max": file("300000\n"), "sys/fs/cgroup/a/memory.current": file("250000\n"),
			"sys/fs/cgroup/a/memory.stat":  file("anon 1\ninactive_file 50000\n"),
			"sys/fs/cgroup/a/b/memory.max": file("max\n"), "sys/fs/cgroup/a/b/memory.current": file("1\n")}, 100000},
		"v1": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("4:memory:/x\n2:cpu:/x\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("4096"), "sys/fs/cgroup/memory/memory.usage_in_bytes": file("5000")}, 0},
		"large limit": {fstest.MapFS{"proc/meminfo": info, "proc/self/cgroup": file("4:memory:/x\n"),
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": file("9223372036854771712"), "sys/fs/cgroup/memory/x/memory.usage_in_bytes": file("5000")}, 500 << 10},
	} {
		if got := availableMemory(tt.fs); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

func TestProcessMemory(t *testing.T) {
	now, most := ProcessMemory("VmRSS"), ProcessMemory("VmHWM")
	if now == 0 {
		t.Skip("this system does not tell")
	}
	if now < 1<<20 || most < now/2 { // the kernel's counts lag behind, each by itself
		t.Errorf("%d bytes resident, and at most %d", now, most)
	}
	if got := ProcessMemory("Name"); got != 0 {
		t.Errorf("a line that is no count gives %d", got)
	}
}
