package ggml

import (
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// AvailableMemory returns how many bytes of memory this process can still take
// without swapping: what the system has, bounded by what the process's cgroup
// (v1 or v2) leaves. It is 0 where that cannot be told.
func AvailableMemory() uint64 { return availableMemory(os.DirFS("/")) }

func availableMemory(root fs.FS) uint64 {
	free := kilobytes(root, "proc/meminfo", "MemAvailable")
	if free == 0 {
		return 0
	}
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		b = []byte("0::/\n")
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[1] == "":
			free = min(free, cgroupFree(root, "sys/fs/cgroup", f[2], "memory.max", "memory.current"))
		case f[1] == "memory":
			free = min(free, cgroupFree(root, "sys/fs/cgroup/memory", f[2], "memory.limit_in_bytes", "memory.usage_in_bytes"))
		}
	}
	return free
}

// ProcessMemory returns how many bytes of memory this process has by one of the counts of proc_pid_status(5): VmRSS (resident),
// VmHWM (the most that ever was resident), RssAnon (of it, what is of no file). It is 0 where that cannot be told.
func ProcessMemory(count string) int64 {
	return int64(kilobytes(os.DirFS("/"), "proc/self/status", count))
}

// kilobytes returns the bytes of a line such as "VmRSS:  1234 kB", 0 if there is none.
func kilobytes(root fs.FS, file, key string) uint64 {
	b, err := fs.ReadFile(root, file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == key+":" {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// cgroupFree returns the least that a group and those above it leave. The page
// cache, which counts as used, is given back when memory is wanted.
func cgroupFree(root fs.FS, mount, group, limit, used string) uint64 {
	number := func(name string) (uint64, bool) {
		b, err := fs.ReadFile(root, name)
		n, err2 := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		return n, err == nil && err2 == nil
	}
	free := ^uint64(0)
	for group = path.Clean("/" + group); ; group = path.Dir(group) {
		dir := strings.TrimSuffix(mount+group, "/")
		most, ok := number(dir + "/" + limit)
		if n, ok2 := number(dir + "/" + used); ok && ok2 {
			n -= min(n, inactiveFile(root, dir))
			free = min(free, most-min(n, most))
		}
		if group == "/" {
			return free
		}
	}
}

func inactiveFile(root fs.FS, dir string) uint64 {
	b, err := fs.ReadFile(root, dir+"/memory.stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) == 2 && (f[0] == "inactive_file" || f[0] == "total_inactive_file") {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}
