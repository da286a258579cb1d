package pipeline

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// ErrNotRegular is the cause of refusing to replace a device, pipe or socket, and of [OpenRegular].
var ErrNotRegular = errors.New("it is not a regular file")

// File is an output that gets its name when it is complete: until Commit the
// old file, if there is one, stays as it is. Write, ReadFrom, Seek and the
// like are those of [os.File].
type File struct {
	*os.File
	path     string // where the file goes, symbolic links followed
	temp     string // its present name; empty while it has none or after Commit
	finished bool   // on disk
	done     bool   // committed or aborted
	written  int64  // bytes that Write took
	started  int64  // of these, bytes that are on their way to the disk
}

// writebackEvery is how many bytes Write takes before it has them written to disk: a large file would else wait for
// the disk at its end, which has had nothing to do until then.
const writebackEvery = 16 << 20

// Write is that of [os.File]; a large file goes to disk while it is written.
func (o *File) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	o.written += int64(n)
	if o.written-o.started >= writebackEvery {
		startWriteback(o.File, o.started, o.written-o.started)
		o.started = o.written
	}
	return n, err
}

// CreateAtomic begins a file that will replace path, in the same folder: a
// symbolic link at path stays and its target, existing or not, is replaced.
// Permissions of an existing file are kept. Where files without a name exist
// (Linux), a process that dies leaves nothing behind unless it is killed in the
// instant in which it replaces a file; elsewhere it leaves .gollama-*.tmp. The
// next CreateAtomic of the same path removes what was left. The error wraps
// ErrNotRegular when path names something other than a regular file,
// syscall.EISDIR when that is a directory, and otherwise that of the system.
//
// The caller ends it with Commit or Abort; deferring Abort is right in all cases.
func CreateAtomic(path string) (*File, error) {
	return create(path, openUnnamed)
}

// WriteFile makes the file at path of data, as [CreateAtomic] does. The error is an *fs.PathError with that path.
func WriteFile(path string, data []byte) error {
	f, err := CreateAtomic(path)
	if err == nil {
		defer f.Abort()
		if _, err = f.Write(data); err == nil {
			err = f.Commit()
		}
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: path, Err: Cause(err)}
	}
	return nil
}

func create(path string, unnamed func(dir string) (*os.File, bool)) (*File, error) {
	target, mode, err := resolve(path)
	if err != nil {
		return nil, err
	}
	return begin(target, mode, unnamed)
}

// begin is CreateAtomic for a path without symbolic links. mode is the permissions of the file there, 0 if there is none.
func begin(target string, mode fs.FileMode, unnamed func(dir string) (*os.File, bool)) (*File, error) {
	sweep(target)
	o := &File{path: target}
	if f, ok := unnamed(filepath.Dir(target)); ok {
		o.File = f
		_, _ = Lock(f) // nobody else has it
	} else if err := o.createNamed(); err != nil {
		return nil, err
	}
	if mode != 0 {
		if err := o.Chmod(mode); err != nil {
			o.Abort()
			return nil, err
		}
	}
	return o, nil
}

// maxLinks is how many symbolic links Linux follows in a path (MAXSYMLINKS).
const maxLinks = 40

// resolve returns the file that path stands for and, if it exists, its permissions.
// filepath.EvalSymlinks would not do: it fails on a link whose target is yet to be made.
func resolve(path string) (string, fs.FileMode, error) {
	for range maxLinks {
		st, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) && path != "" {
			return path, 0, nil
		}
		if err != nil {
			return "", 0, err
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			if !st.Mode().IsRegular() {
				return "", 0, &fs.PathError{Op: "create", Path: path, Err: notRegular(st)}
			}
			return path, st.Mode().Perm(), nil
		}
		to, err := os.Readlink(path)
		if err != nil {
			return "", 0, err
		}
		if !filepath.IsAbs(to) {
			// Not filepath.Join: it would clean "link/.." away, where link may lead elsewhere.
			to = filepath.Dir(path) + string(filepath.Separator) + to
		}
		path = to
	}
	return "", 0, &fs.PathError{Op: "create", Path: path, Err: errors.New("too many symbolic links")}
}

// notRegular says what a file is that is not a regular one.
func notRegular(st fs.FileInfo) error {
	if st.IsDir() {
		return syscall.EISDIR // see Cause
	}
	return ErrNotRegular
}

// tempName returns the k-th temporary name for path. Names are not random, so that what a killed process left is found
// without a look through the folder.
func tempName(path string, k int) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(filepath.Base(path))) // never fails
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".gollama-%016x-%d.tmp", h.Sum64(), k))
}

// A temporary belongs to the process that holds the lock on it, which is the only one that renames or removes it. One
// that nobody holds was left by a process that died.

// sweep removes what dead processes left of path.
func sweep(path string) {
	for k := 0; ; k++ {
		f, err := os.OpenFile(tempName(path, k), os.O_RDWR, 0)
		if err != nil {
			return
		}
		if held, err := Lock(f); held && err == nil && hasName(f, f.Name()) {
			_ = os.Remove(f.Name()) // if it cannot be, it stays
		}
		_ = f.Close()
	}
}

// hasName says whether the file at path is f.
func hasName(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// createNamed opens a file under the first temporary name that is free.
func (o *File) createNamed() error {
	for k := 0; ; k++ {
		f, err := os.OpenFile(tempName(o.path, k), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				pe.Op, pe.Path = "create", o.path // nobody knows the temporary
			}
			return err
		}
		if held, err := Lock(f); err == nil && (!held || !hasName(f, f.Name())) {
			_ = f.Close() // another process took it for left over, between the two calls, and removes it
			continue
		}
		o.File, o.temp = f, f.Name()
		return nil
	}
}

// Finish brings the data to disk. Commit does it too; call it apart to finish
// several files before the first of them gets its name. On an error the file is
// dropped.
func (o *File) Finish() error {
	if o.done {
		return fs.ErrClosed
	}
	if o.finished {
		return nil
	}
	if err := o.Sync(); err != nil {
		o.Abort()
		return err
	}
	o.finished = true
	return nil
}

// Commit gives the file its name, in place of what had it. On an error the
// file is dropped and the old one is untouched. A second call, and one after
// Abort, returns an error.
func (o *File) Commit() error {
	if err := o.Finish(); err != nil {
		return err
	}
	if err := o.name(); err != nil {
		o.Abort()
		return err
	}
	o.temp, o.done = "", true
	_ = o.File.Close() // Sync has returned what could go wrong with the data
	// The data is safe either way; that the name survives a power cut is best effort, not all systems can.
	if dir, err := os.Open(filepath.Dir(o.path)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
	return nil
}

// CommitAll gives files that belong together their names, when all of them are on disk. Readers begin with head: an old
// one is taken away before the others replace theirs, and the new one comes last. So a process that dies in between leaves
// the old files, the new ones, or files without a head, which readers refuse; never a mix that can be read. On an error
// before the first name, all old files are untouched.
func CommitAll(head *File, rest ...*File) error {
	if len(rest) == 0 {
		return head.Commit()
	}
	files := append(slices.Clip(rest), head)
	for _, f := range files {
		if err := f.Finish(); err != nil {
			return err
		}
	}
	if st, err := os.Lstat(head.path); err == nil && st.Mode().IsRegular() { // what became a folder, rename refuses
		if err := os.Remove(head.path); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	return nil
}

// name gives the file its name. A file without one gets it in a single step if nothing has it. To replace a file takes
// two, for linkat does not replace and rename wants a name.
func (o *File) name() error {
	if o.temp == "" {
		if err := linkUnnamed(o.File, o.path); !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for k := 0; o.temp == ""; k++ {
		temp := tempName(o.path, k)
		err := linkUnnamed(o.File, temp)
		if err == nil {
			o.temp = temp
		} else if !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// What was a file when the output began may have become a folder since; rename refuses that.
	return os.Rename(o.temp, o.path)
}

// Abort closes the file and leaves no trace of it. After Commit, and on nil, it does nothing.
func (o *File) Abort() {
	if o == nil || o.done {
		return
	}
	o.done = true
	if o.temp != "" {
		_ = os.Remove(o.temp)
	}
	_ = o.File.Close() // after Remove, which needs the lock
}

// Close is Abort: a file that was not committed does not come into being.
// It hides that of os.File, which would leave the temporary name behind.
func (o *File) Close() error {
	o.Abort()
	return nil
}
