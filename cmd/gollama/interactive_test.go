//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"gollama/internal/engine"
)

// dialogue is gollama at a terminal of 60 columns.
type dialogue struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	mu   sync.Mutex
	text bytes.Buffer // all that came
	seen int          // of it, by expect
}

// talk starts gollama run -i on the story model.
func talk(t *testing.T, args ...string) *dialogue {
	t.Helper()
	self, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = self.Close() })
	d := talkOn(t, self, tty, args...)
	if err := tty.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// talkOn starts it at a terminal whose other end is self.
func talkOn(t *testing.T, self, tty *os.File, args ...string) *dialogue {
	t.Helper()
	return startTalk(t, self, tty, append([]string{"run", "-i", "-m", story(t), "-t", "1", "--temp", "0", "-c", "512", "-q", "--chat-template", "chatml"}, args...)...)
}

// stateHome is where the history of a test's conversations lies.
func stateHome(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return dir // set by the test
	}
	return t.TempDir()
}

// startTalk starts the program at a terminal whose other end is self, and waits for its prompt.
func startTalk(t *testing.T, self, tty *os.File, args ...string) *dialogue {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(self, &pty.Winsize{Rows: 24, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	d := &dialogue{t: t, cmd: exec.Command(program, args...), tty: self}
	d.cmd.Args[0] = "gollama"
	d.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=1", "XDG_STATE_HOME="+stateHome(t))
	d.cmd.Stdin, d.cmd.Stdout, d.cmd.Stderr = tty, tty, tty
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := self.Read(b)
			d.mu.Lock()
			d.text.Write(b[:n])
			d.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	d.expect("> ")
	return d
}

func (d *dialogue) send(keys string) {
	d.t.Helper()
	if _, err := d.tty.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

// expect waits for text in what has come since the last call, and returns what stands before it.
func (d *dialogue) expect(text string) string {
	d.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		d.mu.Lock()
		rest := d.text.String()[d.seen:]
		i := strings.Index(rest, text)
		if i >= 0 {
			d.seen += i + len(text)
		}
		d.mu.Unlock()
		switch {
		case i >= 0:
			return rest[:i]
		case time.Now().After(deadline):
			d.t.Fatalf("waited for %q, got %q", text, rest)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// prompt waits for the next prompt. A line that is edited is drawn anew with its prompt, so the line end before it counts.
func (d *dialogue) prompt() {
	d.t.Helper()
	d.expect("\r\n> ")
}

// longAnswer waits for the beginning of an answer that takes its time.
func (d *dialogue) longAnswer() {
	d.t.Helper()
	d.send("Tell me a long story\r")
	d.expect("\r\n")
	d.expect("a")
}

// ends waits for the program's end and checks its status, and that the terminal is as it was.
func (d *dialogue) ends(want int) {
	d.t.Helper()
	timer := time.AfterFunc(30*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer timer.Stop()
	_ = d.cmd.Wait()
	if code := d.cmd.ProcessState.ExitCode(); code != want {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.t.Errorf("status %d, want %d:\n%s", code, want, d.text.String())
	}
}

// question is what R10 of the reference says, and helloAnswer llama.cpp's answer of 8 tokens.
const (
	question    = "Hello"
	helloAnswer = `"Here?" A`
)

func TestInteractive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.json")
	d := talk(t, "-n", "8", "--transcript", file)
	d.send(question + "\r")
	d.expect(helloAnswer)
	d.prompt()
	// Wide characters: the cursor stands two columns before one that it went back over.
	d.send("日本語")
	d.expect("語")
	d.send("\x1b[D\x1b[D") // left, left
	d.expect("\x1b[5G")    // after "> " and 日, from 1
	d.send("x\r")
	d.prompt()
	// The history has it, and a key edits what it gives.
	d.send("\x1b[A")
	d.expect("日x本語")
	d.send("\x7f!\r")
	d.prompt()
	d.send("/stats\r")
	d.expect("6 messages, 3 answers, ")
	if got := d.expect(" of the prompt's"); strings.HasSuffix(got, ", 0") {
		t.Errorf("nothing of the conversation was in the context already: %q", got)
	}
	d.prompt()
	d.send("\x04")
	d.ends(exitOK)
	var tr transcript
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range tr.Messages {
		if m.Role == "user" {
			said = append(said, m.Content)
		}
	}
	if want := []string{question, "日x本語", "日x本!"}; strings.Join(said, "|") != strings.Join(want, "|") {
		t.Errorf("said %q, want %q", said, want)
	}
	if len(tr.Messages) != 6 || tr.Messages[1].Content != helloAnswer || tr.Type != "transcript" {
		t.Errorf("transcript %s", data)
	}
}

// TestInterrupt: Ctrl-C stops an answer and not the program, and at the prompt it drops the line.
func TestInterrupt(t *testing.T) {
	d := talk(t, "-n", "-1", "--ignore-eos", "-c", "32768")
	d.longAnswer()
	d.send("\x03")
	d.expect("stopped")
	d.prompt()
	d.send("dropped\x03")
	d.prompt()
	d.send("\x03")
	d.expect("Ctrl-D or /quit ends")
	d.prompt()
	d.send("/stats\r")
	d.expect("2 messages, 1 answers")
	d.expect("ended by cancelled")
	d.prompt()
	d.send("/quit\r")
	d.ends(exitOK)
}

// TestInteractiveSignals: a signal ends the program, at the prompt and in an answer, and the terminal is as before.
func TestInteractiveSignals(t *testing.T) {
	for _, tt := range []struct {
		name string
		sig  syscall.Signal
		busy bool
		want int
	}{
		{"term at the prompt", syscall.SIGTERM, false, exitTerminate},
		{"term in an answer", syscall.SIGTERM, true, exitTerminate},
		{"int at the prompt", syscall.SIGINT, false, exitInterrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			self, tty, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = self.Close(), tty.Close() }()
			before, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			d := talkOn(t, self, tty, "-n", "-1", "--ignore-eos", "-c", "32768")
			if tt.busy {
				d.longAnswer()
			}
			if err := d.cmd.Process.Signal(tt.sig); err != nil {
				t.Fatal(err)
			}
			d.ends(tt.want)
			after, err := term.GetState(int(tty.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			if *before != *after {
				t.Errorf("the terminal is %v, was %v", after, before)
			}
		})
	}
}

// TestInteractiveCommands does each command.
func TestInteractiveCommands(t *testing.T) {
	dir := t.TempDir()
	note, saved := filepath.Join(dir, "note.txt"), filepath.Join(dir, "saved.json")
	if err := os.WriteFile(note, []byte("Once upon a time\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	d := talk(t, "-n", "8", "--temp", "1", "-s", "1", "-sys", "Be brief")
	do := func(keys, want string) string {
		t.Helper()
		d.send(keys)
		got := d.expect(want)
		d.prompt()
		return got
	}
	do("/help\r", "/regen")
	do("/nonsense\r", "there is no command /nonsense")
	do("/stats now\r", "/stats takes nothing")
	do("/regen\r", "there is no message to answer")
	do("/system\r", "Be brief")
	do("/system Be long\r", "")
	do("/system\r", "Be long")
	do("/read "+note+"\r", "17 bytes of "+note)
	do("/read "+dir+"\r", "error: ")
	do("/load "+note+"\r", "error: ")
	do("\"\"\"one\rtwo\r\rthree\"\"\"\r", "cut by -n")
	do("four\\\rfive\r", "cut by -n")
	do("//six\r", "cut by -n")
	do("/save "+saved+"\r", "")
	before := readTranscript(t, saved)
	var said []string
	for _, m := range before.Messages {
		if m.Role == "user" {
			said = append(said, m.Content)
		}
	}
	if want := "Once upon a time\n\n\none\ntwo\n\nthree|four\nfive|/six"; strings.Join(said, "|") != want {
		t.Errorf("said %q, want %q", strings.Join(said, "|"), want)
	}
	do("/regen\r", "cut by -n")
	do("/save "+saved+"\r", "")
	after := readTranscript(t, saved)
	n := len(before.Messages)
	if len(after.Messages) != n || after.Messages[n-1].Content == before.Messages[n-1].Content {
		t.Errorf("/regen: %d messages, was %d; the answer %q, was %q", len(after.Messages), n, after.Messages[n-1].Content, before.Messages[n-1].Content)
	}
	if after.Messages[0].Content != "Be long" {
		t.Errorf("the system message is %q", after.Messages[0].Content)
	}
	do("/clear\r", "")
	do("/stats\r", "1 messages")
	do("/load "+saved+"\r", "7 messages")
	do("/stats\r", "7 messages")
	d.send("/bye\r")
	d.ends(exitOK)
}

// TestInteractiveOverflow: what does not fit the context any more is left out in whole exchanges, or is an error.
func TestInteractiveOverflow(t *testing.T) {
	long := strings.Repeat("a big dog ", 12) + "\r"
	d := talk(t, "-n", "8", "-c", "256", "--context-shift", "-sys", "Be brief")
	for range 2 {
		d.send(long)
		d.prompt()
	}
	d.send(long)
	d.expect("the first 2 messages do not fit the context any more")
	d.prompt()
	d.send("/stats\r")
	d.expect("7 messages, 3 answers")
	d.prompt()
	d.send("\x04")
	d.ends(exitOK)
	d = talk(t, "-n", "8", "-c", "256")
	for range 2 {
		d.send(long)
		d.prompt()
	}
	d.send(long)
	d.expect("error: prompt is too long: ")
	d.expect("hint: ")
	d.prompt()
	d.send("/stats\r")
	d.expect("4 messages, 2 answers")
	d.prompt()
	d.send("\x04")
	d.ends(exitOK)
}

func readTranscript(t *testing.T, path string) transcript {
	t.Helper()
	var tr transcript
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &tr)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain\n\tä日": "plain\n\tä日", "\x1b[31mred": "^[[31mred", "a\x00b\rc": "a^@b^Mc", "\x7f\u009b": "\ufffd\ufffd",
	} {
		if got := visible(in); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestUserMessage(t *testing.T) {
	text := func(s string) engine.ChatPart { return engine.ChatPart{Type: "text", Text: s} }
	media := engine.ChatPart{Type: "media_marker", Text: "cat.png"}
	for _, tt := range []struct {
		parts []engine.ChatPart
		text  string
		want  string
	}{
		{nil, "hi", `{"role":"user","content":"hi"}`},
		{[]engine.ChatPart{text("file")}, "hi", `{"role":"user","content":"file\n\nhi"}`},
		{[]engine.ChatPart{media}, "hi", `{"role":"user","content":[{"type":"media_marker","text":"cat.png"},{"type":"text","text":"hi"}]}`},
		{[]engine.ChatPart{media}, "", `{"role":"user","content":[{"type":"media_marker","text":"cat.png"}]}`},
	} {
		b, err := json.Marshal(userMessage(tt.parts, tt.text))
		if err != nil || string(b) != tt.want {
			t.Errorf("userMessage(%v, %q) = %s, %v, want %s", tt.parts, tt.text, b, err, tt.want)
		}
	}
}
