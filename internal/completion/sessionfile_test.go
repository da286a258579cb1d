package completion

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"gollama/internal/engine"
)

func savedSession() *SavedSession {
	return &SavedSession{SessionHeader: SessionHeader{Program: "p", Engine: "e", Command: []string{"a"}, Of: map[string]string{"model": "m", "rope": "r"},
		Shape: map[string]string{"threads": "1"}, Prompt: 5, Cells: 6, Exact: 4}, IDs: []engine.Token{1, 2, 3, 4, 5, 6, 7}, Data: []byte("state")}
}

func encoded(t testing.TB, s *SavedSession) []byte {
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSessionFile(t *testing.T) {
	want := savedSession()
	data := encoded(t, want)
	got, err := DecodeSession(data)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for i := range data { // each byte of it matters, but for those that the header keeps for the reader
		for _, bit := range []byte{1, 0x40} {
			bad := bytes.Clone(data)
			bad[i] ^= bit
			s, err := DecodeSession(bad)
			if err == nil && i > bytes.IndexByte(data, '\n') {
				t.Errorf("byte %d flipped: no error", i)
			}
			if err != nil && (!errors.Is(err, ErrSession) || s != nil) {
				t.Errorf("byte %d flipped: %v, want ErrSession", i, err)
			}
		}
	}
	for n := range data {
		if _, err := DecodeSession(data[:n]); !errors.Is(err, ErrSession) {
			t.Errorf("the first %d bytes: %v, want ErrSession", n, err)
		}
	}
}

func TestSessionCheck(t *testing.T) {
	s := savedSession()
	if err := s.Check(map[string]string{"model": "m", "rope": "r"}); err != nil {
		t.Error(err)
	}
	err := s.Check(map[string]string{"model": "m", "rope": "x"})
	if !errors.Is(err, ErrSession) || !strings.Contains(err.Error(), `rope: it was made with "r", and this run has "x"`) {
		t.Errorf("got %v, want an error about rope", err)
	}
}

func TestSessionReusable(t *testing.T) {
	s := savedSession()
	for _, tt := range []struct {
		prompt []engine.Token
		step   int
		want   int
	}{
		{[]engine.Token{1, 2, 3, 4, 5, 6}, 2, 4},
		{[]engine.Token{1, 2, 3, 4, 5, 6}, 3, 3},
		{[]engine.Token{1, 2, 3, 4}, 2, 2}, // the last is evaluated
		{[]engine.Token{1, 2, 3, 9, 9}, 2, 2},
		{[]engine.Token{9, 2, 3}, 1, 0},
		{[]engine.Token{1, 2, 3, 4, 5, 6, 7, 8}, 1, 4}, // the rest was computed otherwise
		{[]engine.Token{1, 2, 3, 4, 5, 6}, 512, 0},
	} {
		if got := s.Reusable(tt.prompt, tt.step); got != tt.want {
			t.Errorf("Reusable(%v, %d) = %d, want %d", tt.prompt, tt.step, got, tt.want)
		}
	}
	s = encodedSession(t, s)
	if got := s.Continued(2); got != 6 {
		t.Errorf("Continued = %d, want 6", got)
	}
	s.Prompt = 7
	if got := s.Continued(2); got != 4 {
		t.Errorf("Continued of a prompt = %d, want 4", got)
	}
}

func encodedSession(t *testing.T, s *SavedSession) *SavedSession {
	s, err := DecodeSession(encoded(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func FuzzDecodeSession(f *testing.F) {
	f.Add(encoded(f, savedSession()))
	f.Add([]byte(`{"type":"gollama-session","version":1,"tokens":1,"prompt":1,"cells":1,"state":0}` + "\nabcd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := DecodeSession(data)
		if err != nil {
			if !errors.Is(err, ErrSession) {
				t.Errorf("%v, want ErrSession", err)
			}
			return
		}
		if again, err := DecodeSession(encoded(t, s)); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("read again: %+v, %v, want %+v", again, err, s)
		}
	})
}
