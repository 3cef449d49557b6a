package follow_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/follow"
	"github.com/psyche-go/psyche/face/dash/history"
)

var run = dashtest.Options{RunID: "followed", Members: 6, Rounds: 12, RoundsPerEpoch: 4, Silent: 3, Eject: 2}

// following starts a Log and returns it with a function that stops it.
func following(o follow.Options) (l *follow.Log, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	l = follow.NewJournal(o)
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	return l, func() { cancel(); <-done }
}

func seen(l *follow.Log) (h history.History) {
	l.History(func(have *history.History) { h = *have })
	return h
}

// whole returns the history of a run that is followed from its start.
func whole(t *testing.T) history.History {
	t.Helper()
	var h history.History
	if err := dashtest.Play(run, func(e history.Entry, s *coordinator.State) error { h.See(e, s); return nil }); err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGrowing follows a journal that is created, grows in pieces with arbitrary ends, and is
// finished while several processes follow it in turn. Each process continues from the history that
// the previous process stored.
func TestGrowing(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "whole")
	if err := dashtest.Write(source, run); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	want := whole(t)
	synctest.Test(t, func(t *testing.T) {
		o := follow.Options{Path: filepath.Join(dir, "run.journal"), Keep: filepath.Join(dir, "run.history")}
		var last uint64
		grown, err := os.Create(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = grown.Close() }()
		at := 0
		for _, share := range []int{0, 10, 33, 34, 71, 100} {
			l, stop := following(o)
			time.Sleep(time.Second)
			piece := text[at : len(text)*share/100]
			if _, err := grown.Write(piece); err != nil {
				t.Error(err)
			}
			at += len(piece)
			time.Sleep(2 * time.Second)
			v, n := l.View(), seen(l).Seen
			stop()
			if v.Problem != "" || n < last {
				t.Errorf("%d %%: %q, %d entries, had %d", share, v.Problem, n, last)
			}
			last = n
			if share == 100 {
				if diff := cmp.Diff(want, seen(l)); diff != "" {
					t.Error(diff)
				}
				if v := l.View(); v.State == nil || v.State.RunState != coordinator.Finished {
					t.Errorf("the state at the end: %+v", v.State)
				}
			}
		}
	})
}

// TestKeptHistoryOfAnotherJournal checks that a stored history is rebuilt if it belongs to a
// different journal or is invalid.
func TestKeptHistoryOfAnotherJournal(t *testing.T) {
	dir := t.TempDir()
	other := run
	other.Rounds = 16
	for name, o := range map[string]dashtest.Options{"other.journal": other, "run.journal": run} {
		if err := dashtest.Write(filepath.Join(dir, name), o); err != nil {
			t.Fatal(err)
		}
	}
	want := whole(t)
	synctest.Test(t, func(t *testing.T) {
		keep := filepath.Join(dir, "run.history")
		_, stop := following(follow.Options{Path: filepath.Join(dir, "other.journal"), Keep: keep})
		time.Sleep(time.Second)
		stop()
		for range 2 {
			l, stop := following(follow.Options{Path: filepath.Join(dir, "run.journal"), Keep: keep})
			time.Sleep(time.Second)
			stop()
			if diff := cmp.Diff(want, seen(l)); diff != "" {
				t.Error(diff)
			}
			if err := os.WriteFile(keep, []byte("rubbish"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestDamage checks that a log with a changed byte is shown only up to that byte, with an error,
// and is shown completely after the byte was restored.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.journal")
	if err := dashtest.Write(path, run); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l, stop := following(follow.Options{Path: path})
		defer stop()
		time.Sleep(time.Second)
		if problem := l.View().Problem; !strings.Contains(problem, path) || !strings.Contains(problem, "offset") {
			t.Errorf("the problem is reported to be %q", problem)
		}
		text[len(text)/2] ^= 1
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if v := l.View(); v.Problem != "" || v.State == nil || v.State.RunState != coordinator.Finished {
			t.Errorf("after it was put back: %+v", v.Problem)
		}
	})
}

// TestReading checks that a user who opens a page before its log was read sees the progress.
func TestReading(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.journal")
	long := run
	long.Rounds = 400
	if err := dashtest.Write(path, long); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	l, stop := following(follow.Options{Path: path})
	defer stop()
	var told []follow.Reading
	for deadline := time.Now().Add(time.Minute); l.View().State == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if r := l.View().Reading; r != nil && (len(told) == 0 || *r != told[len(told)-1]) {
			told = append(told, *r)
		}
	}
	if len(told) < 3 {
		t.Fatalf("the log reports %v", told)
	}
	for i, r := range told {
		if r.Size != info.Size() || r.Bytes > r.Size || i > 0 && r.Bytes <= told[i-1].Bytes {
			t.Errorf("progress %v of a log of %d bytes", told, info.Size())
		}
	}
	if r := l.View().Reading; r != nil {
		t.Errorf("progress %v of a log that is read", r)
	}
}
