package main

import (
	"errors"
	"os"
	"os/exec"
)

// spinArg makes this program one of its own busy processes.
const spinArg = "-spin-for-ever"

// spin takes all the processor it can get until it is killed, or its parent is gone.
func spin() {
	parent := os.Getppid()
	x := uint64(1)
	for {
		for range 1 << 28 {
			x = x*6364136223846793005 + 1442695040888963407
		}
		if x == 0 || os.Getppid() != parent {
			os.Exit(1)
		}
	}
}

// startBusy starts n spinning processes and returns what ends them.
func startBusy(n int) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var started []*exec.Cmd
	stop = func() {
		for _, c := range started {
			_ = c.Process.Kill() // it may be gone
			_ = c.Wait()         // "signal: killed"
		}
	}
	for range n {
		c := exec.Command(self, spinArg)
		if err := c.Start(); err != nil {
			stop()
			return nil, errors.Join(errors.New("start a busy process"), err)
		}
		started = append(started, c)
	}
	return stop, nil
}
