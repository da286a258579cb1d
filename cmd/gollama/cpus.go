package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func parseCPUMask(s string) ([]int, error) {
	digits := strings.TrimPrefix(s, "0x")
	if digits == "" || len(digits) > 128 {
		return nil, fmt.Errorf("%q is not a CPU mask of 1 to 128 hexadecimal digits", s)
	}
	var cpus []int
	for i := len(digits) - 1; i >= 0; i-- {
		d, err := strconv.ParseUint(digits[i:i+1], 16, 8)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CPU mask of hexadecimal digits", s)
		}
		for bit := range 4 {
			if d>>bit&1 == 1 {
				cpus = append(cpus, (len(digits)-1-i)*4+bit)
			}
		}
	}
	if len(cpus) == 0 {
		return nil, fmt.Errorf("the mask %q holds no CPU", s)
	}
	return cpus, nil
}

func parseCPURange(s string) ([]int, error) {
	a, b, ok := strings.Cut(s, "-")
	if !ok {
		return nil, fmt.Errorf("%q: want LO-HI, such as 0-3", s)
	}
	lo, hi := 0, maxCPUs-1
	var err error
	if a != "" {
		if lo, err = parseInt(a, 0, maxCPUs-1); err != nil {
			return nil, err
		}
	}
	if b != "" {
		if hi, err = parseInt(b, 0, maxCPUs-1); err != nil {
			return nil, err
		}
	}
	if hi < lo {
		return nil, fmt.Errorf("the range %q is empty", s)
	}
	cpus := make([]int, 0, hi-lo+1)
	for c := lo; c <= hi; c++ {
		cpus = append(cpus, c)
	}
	return cpus, nil
}

// cpuVar binds a CPU mask or range; both add to the same set.
func cpuVar(p func(*options) *[]int, parse func(string) ([]int, error), printed bool) binding {
	b := binding{
		kind: kindString,
		set: func(o *options, s string) error {
			cpus, err := parse(s)
			if err != nil {
				return err
			}
			seen := map[int]bool{}
			for _, c := range *p(o) {
				seen[c] = true
			}
			for _, c := range cpus {
				if !seen[c] {
					*p(o) = append(*p(o), c)
				}
			}
			slices.Sort(*p(o))
			return nil
		},
		reset: func(o *options) { *p(o) = nil },
	}
	if printed {
		b.get = func(o *options) any { return textCPUMask(*p(o)) }
	}
	return b
}

// textCPUMask writes the mask that parseCPUMask reads; none is "".
func textCPUMask(cpus []int) string {
	if len(cpus) == 0 {
		return ""
	}
	top := 0
	for _, c := range cpus {
		top = max(top, c)
	}
	digits := make([]byte, top/4+1)
	for _, c := range cpus {
		digits[len(digits)-1-c/4] |= 1 << (c % 4)
	}
	for i, d := range digits {
		digits[i] = "0123456789abcdef"[d]
	}
	return "0x" + string(digits)
}
