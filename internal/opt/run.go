package opt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"gollama/internal/gguf"
	"gollama/internal/pipeline"
)

// Names in a run folder.
const (
	metricsName     = "metrics.jsonl"
	checkpointsName = "ckpt"
	samplesName     = "samples"
	lockName        = "lock"
)

// RunConfig says what is in a run folder.
type RunConfig struct {
	Dir    string
	Resume bool              // go on from the newest checkpoint, if there is one
	Keep   int               // newest checkpoints to keep, besides the best; below 1 is 1
	About  map[string]string // who made it: program, engine, command line
	// Settings are those that decide the result. A run is only resumed with the
	// same ones.
	Settings map[string]string
	// WeightsName is the file of the parameters in a checkpoint, and WriteWeights
	// makes it at path and brings it to disk: a GGUF file that has each parameter
	// in F32 under its name. Nil writes the parameters and nothing else.
	WeightsName  string
	WriteWeights func(path string) error
}

// Run is a run folder:
//
//	metrics.jsonl           one Report a line
//	loss.png, loss.svg      the loss curve
//	samples/                texts made during training
//	ckpt/step-N/            checkpoints: parameters, optimizer.gguf, state.json
//
// One process at a time has it.
type Run struct {
	cfg     RunConfig
	lock    *os.File
	metrics *os.File
	size    int64 // bytes of metrics
	newest  int64 // step of the newest checkpoint, -1 without one
	warn    func(string)
}

// ErrWrite is wrapped by errors of writing into a run folder.
var ErrWrite = errors.New("write")

// writeError wraps ErrWrite without saying so.
type writeError struct{ err error }

func (e *writeError) Error() string        { return e.err.Error() }
func (e *writeError) Unwrap() error        { return e.err }
func (e *writeError) Is(target error) bool { return target == ErrWrite }

// writing marks an error, if it is one, as one of writing.
func writing(err error) error {
	if err == nil {
		return nil
	}
	return &writeError{err}
}

// RunExistsError is returned when a folder holds a run and was not opened to
// resume it.
type RunExistsError struct{ Dir string }

func (e *RunExistsError) Error() string { return e.Dir + ": holds a run already" }

// SettingsError is returned when a run was made with other settings.
type SettingsError struct{ Dir, Key, Got, Want string }

func (e *SettingsError) Error() string {
	return fmt.Sprintf("%s: the run was made with %s %s, now it is %s", e.Dir, e.Key, orNone(e.Want), orNone(e.Got))
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// OpenRun makes or opens a run folder. warn, which may be nil, is told of
// checkpoints that are damaged and passed over.
func OpenRun(cfg RunConfig, warn func(string)) (*Run, error) {
	if cfg.WeightsName == "" {
		cfg.WeightsName = "params.gguf"
	}
	cfg.Keep = max(cfg.Keep, 1)
	if warn == nil {
		warn = func(string) {}
	}
	r := &Run{cfg: cfg, newest: -1, warn: warn}
	if err := os.MkdirAll(r.path(checkpointsName), 0o777); err != nil {
		return nil, writing(err)
	}
	if err := r.open(); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Run) open() error {
	var err error
	if r.lock, err = lockFile(r.path(lockName)); err != nil {
		return fmt.Errorf("%s: %w", r.cfg.Dir, err)
	}
	if err := r.tidy(); err != nil {
		return err
	}
	if r.metrics, err = os.OpenFile(r.path(metricsName), os.O_RDWR|os.O_CREATE, 0o666); err != nil {
		return writing(err)
	}
	if r.cfg.Resume {
		return nil
	}
	st, err := r.metrics.Stat()
	if err != nil {
		return err
	}
	if steps, err := r.steps(); err != nil || len(steps) > 0 || st.Size() > 0 {
		return errors.Join(err, &RunExistsError{r.cfg.Dir})
	}
	return nil
}

func (r *Run) path(names ...string) string {
	return filepath.Join(append([]string{r.cfg.Dir}, names...)...)
}

// Close closes the folder. It may be called twice and on nil.
func (r *Run) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, f := range []**os.File{&r.metrics, &r.lock} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

// Remove closes the folder and takes away all that a run puts there, and the
// folder itself if nothing else is in it.
func (r *Run) Remove() error {
	err := r.Close()
	for _, name := range []string{checkpointsName, samplesName, metricsName, "init.gguf", "loss.png", "loss.svg", ConfigName, lockName} {
		err = errors.Join(err, os.RemoveAll(r.path(name)))
	}
	if left, lerr := os.ReadDir(r.cfg.Dir); lerr == nil && len(left) == 0 {
		err = errors.Join(err, os.Remove(r.cfg.Dir))
	}
	return err
}

// ConfigName is the file of the settings in a run folder, for [Run.WriteFile].
const ConfigName = "config.yaml"

// WriteFile writes a file in the folder, whole or not at all. name may have a
// folder of its own.
func (r *Run) WriteFile(name string, data []byte) error {
	path := r.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return writing(err)
	}
	return writing(pipeline.WriteFile(path, data))
}

// WriteSample writes the text made after step.
func (r *Run) WriteSample(step int64, text string) error {
	return r.WriteFile(filepath.Join(samplesName, fmt.Sprintf("step-%d.txt", step)), []byte(text))
}

// record appends a report to the metrics.
func (r *Run) record(rep Report) error {
	line, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	n, err := r.metrics.WriteAt(append(line, '\n'), r.size)
	r.size += int64(n)
	return writing(err)
}

// Reports reads the metrics of a run folder. A torn last line is passed over. The error names the line.
func Reports(dir string) ([]Report, error) {
	path := filepath.Join(dir, metricsName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list []Report
	for line := range bytes.Lines(text) {
		line, whole := bytes.CutSuffix(line, []byte("\n"))
		if !whole {
			break
		}
		var rep Report
		if err := pipeline.Decode(line, &rep); err != nil {
			return list, fmt.Errorf("%s:%d: %w", path, len(list)+1, err)
		}
		list = append(list, rep)
	}
	return list, nil
}

// kvs returns the keys of a file of the run.
func (r *Run) kvs() gguf.KVs {
	var kvs gguf.KVs
	for _, k := range slices.Sorted(maps.Keys(r.cfg.About)) {
		kvs = append(kvs, gguf.KV{Key: "gollama." + k, Value: gguf.ValueOf(r.cfg.About[k])})
	}
	return kvs
}

// rename gives a folder its name and makes it last.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncDir(filepath.Dir(to))
}

// syncDir brings the names in a folder to disk, where the system can do that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
