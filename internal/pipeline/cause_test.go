package pipeline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

func TestCause(t *testing.T) {
	_, gone := os.Stat("gone.txt")
	_, dir := os.ReadFile(".")
	_, folder := CreateAtomic("gone/out.txt")
	_, out := CreateAtomic(".")
	for _, c := range []struct {
		err  error
		want string
	}{
		{gone, "no such file"},
		{fmt.Errorf("--list: %w", gone), "no such file"},
		{dir, "it is a directory"},
		{folder, "no such file or directory"},
		{out, "it is a directory"},
		{errors.New("open the window: it is warm"), "open the window: it is warm"},
	} {
		got := Cause(c.err)
		if got.Error() != c.want {
			t.Errorf("the cause of %q is %q, want %q", c.err, got, c.want)
		}
		if missing := errors.Is(c.err, fs.ErrNotExist); errors.Is(got, fs.ErrNotExist) != missing {
			t.Errorf("the cause of %q says that the file is missing: %v", c.err, !missing)
		}
	}
}
