package opt

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gollama/internal/opt/graph"
	"gollama/internal/pipeline"
)

// Names in a checkpoint and, with a dot, of folders on their way in or out.
const (
	optimizerName = "optimizer.gguf"
	stateFileName = "state.json"
	stepPrefix    = "step-"
	newPrefix     = ".new-"
	oldPrefix     = ".old-"
)

const checkpointFormat = 1

// checkpointFile is state.json.
type checkpointFile struct {
	Format   int                 `json:"format"`
	About    map[string]string   `json:"about,omitempty"`
	Settings map[string]string   `json:"settings,omitempty"`
	State    state               `json:"state"`
	Updates  int64               `json:"updates"`       // of the optimizer
	Metrics  int64               `json:"metrics_bytes"` // of metrics.jsonl that belong to it
	Files    map[string]fileHash `json:"files"`
	Sum      string              `json:"sha256"` // of all the fields above
}

// sum returns what Sum should be. Go writes a struct's JSON in one way, and
// numbers so that they come back to the bit.
func (c checkpointFile) sum() (string, error) {
	c.Sum = ""
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

type fileHash struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// dir returns the folder of the checkpoint after step.
func (r *Run) dir(step int64) string {
	return r.path(checkpointsName, stepPrefix+strconv.FormatInt(step, 10))
}

// steps returns the steps that there are checkpoints of, in order.
func (r *Run) steps() ([]int64, error) {
	entries, err := os.ReadDir(r.path(checkpointsName))
	if err != nil {
		return nil, err
	}
	var steps []int64
	for _, e := range entries {
		text, ok := strings.CutPrefix(e.Name(), stepPrefix)
		if n, err := strconv.ParseInt(text, 10, 64); ok && err == nil && n >= 0 && e.IsDir() {
			steps = append(steps, n)
		}
	}
	slices.Sort(steps)
	return steps, nil
}

// tidy finishes what a process that was killed had begun.
func (r *Run) tidy() error {
	entries, err := os.ReadDir(r.path(checkpointsName))
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := r.path(checkpointsName, e.Name())
		if name, ok := strings.CutPrefix(e.Name(), oldPrefix); ok {
			// It was being replaced; without a successor it is still good.
			if _, err := os.Stat(r.path(checkpointsName, name)); os.IsNotExist(err) {
				if err := rename(path, r.path(checkpointsName, name)); err != nil {
					return err
				}
				continue
			}
		}
		if strings.HasPrefix(e.Name(), oldPrefix) || strings.HasPrefix(e.Name(), newPrefix) || strings.HasPrefix(e.Name(), ".gollama-") {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// save makes a checkpoint: a new folder whose files are on disk before it gets
// its name. Older ones are removed then, but for the best and the newest Keep.
func (r *Run) save(st *state, o *Optimizer) (err error) {
	if err := r.metrics.Sync(); err != nil {
		return err
	}
	temp := r.path(checkpointsName, newPrefix+filepath.Base(r.dir(st.Step)))
	if err := os.RemoveAll(temp); err != nil {
		return err
	}
	if err := os.Mkdir(temp, 0o777); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	if err := r.fill(temp, st, o); err != nil {
		return err
	}
	return r.install(temp, st)
}

// fill writes the files of a checkpoint into temp and brings them to disk.
func (r *Run) fill(temp string, st *state, o *Optimizer) (err error) {
	c := checkpointFile{Format: checkpointFormat, About: r.cfg.About, Settings: r.cfg.Settings, State: *st,
		Updates: o.updates, Metrics: r.size, Files: map[string]fileHash{}}
	for _, f := range []struct {
		name  string
		write func(path string) error
	}{
		{r.cfg.WeightsName, r.writeWeights(o.params)},
		{optimizerName, func(path string) error { return writeTensors(path, r.kvs(), o.state()) }},
	} {
		path := filepath.Join(temp, f.name)
		if err := f.write(path); err != nil {
			return err
		}
		if c.Files[f.name], err = hashFile(path); err != nil {
			return err
		}
	}
	if c.Sum, err = c.sum(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := pipeline.WriteFile(filepath.Join(temp, stateFileName), append(text, '\n')); err != nil {
		return err
	}
	return syncDir(temp)
}

// install gives the folder temp its name and removes what is not needed any more.
func (r *Run) install(temp string, st *state) error {
	dir := r.dir(st.Step)
	old := r.path(checkpointsName, oldPrefix+filepath.Base(dir))
	if _, err := os.Stat(dir); err == nil {
		if err := os.Rename(dir, old); err != nil {
			return err
		}
	}
	if err := rename(temp, dir); err != nil {
		return err
	}
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	r.newest = st.Step
	steps, err := r.steps()
	if err != nil {
		return err
	}
	// After a resume from an older checkpoint there may be damaged newer ones.
	steps = slices.DeleteFunc(steps, func(s int64) bool { return s > st.Step })
	for _, s := range steps[:max(len(steps)-r.cfg.Keep, 0)] {
		if st.Best != nil && s == st.Best.Step {
			continue
		}
		if err := r.drop(s); err != nil {
			return err
		}
	}
	return nil
}

// drop removes a checkpoint. It loses its name first, so that there are no
// halves of one.
func (r *Run) drop(step int64) error {
	gone := r.path(checkpointsName, newPrefix+filepath.Base(r.dir(step)))
	if err := os.Rename(r.dir(step), gone); err != nil {
		return err
	}
	return os.RemoveAll(gone)
}

func (r *Run) writeWeights(params []*graph.Param) func(path string) error {
	if r.cfg.WriteWeights != nil {
		return r.cfg.WriteWeights
	}
	return func(path string) error { return writeTensors(path, r.kvs(), paramTensors(params)) }
}

func paramTensors(params []*graph.Param) []tensor {
	list := make([]tensor, len(params))
	for i, p := range params {
		list[i] = tensor{p.Name, p.Shape, p.Data}
	}
	return list
}

// hashFile returns the hash of the file at path, which its writer has brought
// to disk.
func hashFile(path string) (h fileHash, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer func() { _ = f.Close() }() // only read from
	sum := sha256.New()
	if h.Bytes, err = io.Copy(sum, f); err != nil {
		return h, err
	}
	h.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return h, nil
}

// check compares a file with its hash.
func (h fileHash) check(path string) error {
	got, err := hashFile(path)
	if err != nil {
		return err
	}
	if got != h {
		return fmt.Errorf("%s: not the file that was written: %d bytes, want %d, or another hash", path, got.Bytes, h.Bytes)
	}
	return nil
}

// readCheckpoint reads state.json and compares the hashes of all files.
func (r *Run) readCheckpoint(step int64) (c checkpointFile, err error) {
	path := filepath.Join(r.dir(step), stateFileName)
	text, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := pipeline.DecodeStrict(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	sum, err := c.sum()
	if err != nil {
		return c, err
	}
	switch {
	case sum != c.Sum:
		return c, fmt.Errorf("%s: not the file that was written: its hash is another", path)
	case c.Format != checkpointFormat:
		return c, fmt.Errorf("%s: format %d, want %d", path, c.Format, checkpointFormat)
	case c.State.Step != step || c.State.Epoch < 0 || c.State.Cursor < 0 || c.Updates < 0 || c.Metrics < 0:
		return c, fmt.Errorf("%s: it is not the state after step %d", path, step)
	}
	for _, name := range []string{r.cfg.WeightsName, optimizerName} {
		h, ok := c.Files[name]
		if !ok {
			return c, fmt.Errorf("%s: it lists no %s", path, name)
		}
		if err := h.check(filepath.Join(r.dir(step), name)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// load takes over the newest checkpoint that is whole, if the folder was opened
// to resume, and cuts the metrics back to it. ok is false without one: the run
// then begins at its start.
func (r *Run) load(params []*graph.Param, o *Optimizer) (st state, ok bool, err error) {
	if !r.cfg.Resume {
		return st, false, nil
	}
	steps, err := r.steps()
	if err != nil {
		return st, false, err
	}
	for _, step := range slices.Backward(steps) {
		c, err := r.readCheckpoint(step)
		if err != nil {
			r.warn(fmt.Sprintf("a damaged checkpoint is passed over: %s", err))
			if err := r.drop(step); err != nil {
				return st, false, err
			}
			continue
		}
		if err := r.sameSettings(c.Settings); err != nil {
			return st, false, err
		}
		if err := r.loadParams(step, params); err != nil {
			return st, false, err
		}
		if err := readTensors(filepath.Join(r.dir(step), optimizerName), o.state()); err != nil {
			return st, false, err
		}
		o.updates, r.newest = c.Updates, step
		return c.State, true, r.cutMetrics(c.Metrics)
	}
	return st, false, r.cutMetrics(0)
}

// loadParams fills the parameters from the checkpoint after step.
func (r *Run) loadParams(step int64, params []*graph.Param) error {
	return readTensors(filepath.Join(r.dir(step), r.cfg.WeightsName), paramTensors(params))
}

// sameSettings compares with those of a checkpoint.
func (r *Run) sameSettings(was map[string]string) error {
	keys := maps.Clone(was)
	if keys == nil {
		keys = map[string]string{}
	}
	maps.Copy(keys, r.cfg.Settings)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if was[k] != r.cfg.Settings[k] {
			return &SettingsError{Dir: r.cfg.Dir, Key: k, Got: r.cfg.Settings[k], Want: was[k]}
		}
	}
	return nil
}

// cutMetrics drops reports that came after the checkpoint.
func (r *Run) cutMetrics(size int64) error {
	st, err := r.metrics.Stat()
	if err != nil {
		return err
	}
	r.size = min(size, st.Size()) // less if the user cut the file: what is left stays
	return r.metrics.Truncate(r.size)
}
