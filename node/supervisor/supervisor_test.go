package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// Exit codes of the clients.
const (
	failed      = 1
	wrongInput  = 2
	hostFault   = 7
	interrupted = signals.Interrupted
)

// served is a supervisor of the runs a, b and so on. The test controls its clients and hosts.
type served struct {
	Supervisor
	access    sync.Mutex // to seen, which timers of the test change
	seen      map[string]Outlook
	lives     func(name string) (time.Duration, End) // lifetime and end of the next client; a lifetime of 0 never ends
	starts    []string
	began     []time.Time
	left      []string // clients that were asked to leave
	killed    []string
	deaf      bool // a client that is asked to leave stays
	impatient chan struct{}
	log       strings.Builder
}

// see sets the result of the next checks of a run.
func (s *served) see(name string, o Outlook) {
	s.access.Lock()
	defer s.access.Unlock()
	s.seen[name] = o
}

func newServed(names ...string) *served {
	s := &served{seen: make(map[string]Outlook), impatient: make(chan struct{})}
	s.Supervisor = Supervisor{
		Patience: 10 * time.Minute, Random: rand.New(rand.NewPCG(1, 2)), Impatient: s.impatient, Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		ExitCodes: map[int]ExitCode{wrongInput: {"its client reported a wrong command line or input; see the messages above", true}, hostFault: {"its server provably lied; the messages above name the evidence", true}},
	}
	for i, name := range names {
		s.Runs = append(s.Runs, &Run{
			ID: name, Given: fmt.Sprintf("link %d", i+1),
			Look: func(context.Context) Outlook {
				s.access.Lock()
				defer s.access.Unlock()
				seen := s.seen[name]
				seen.Met = seen.Prospect == Open
				return seen
			},
			Start: func() (*Client, error) { return s.startClient(name), nil },
		})
	}
	return s
}

// startClient starts a client of a run, which ends as lives defines.
func (s *served) startClient(name string) *Client {
	s.starts, s.began = append(s.starts, name), append(s.began, time.Now())
	life, end := s.lives(name)
	c := &Client{Ended: make(chan struct{})}
	finish := func(e End) {
		select {
		case <-c.Ended:
		default:
			c.End = e
			close(c.Ended)
		}
	}
	if life > 0 {
		time.AfterFunc(life, func() { finish(end) })
	}
	c.Interrupt = func() error {
		s.left = append(s.left, name)
		if !s.deaf {
			finish(End{Code: interrupted})
		}
		return nil
	}
	c.Kill = func() error {
		s.killed = append(s.killed, name)
		finish(End{Code: -1, Text: "signal: killed"})
		return nil
	}
	return c
}

// TestBacksOff checks that a client that ends at once is restarted after increasing pauses, up
// to a bound, and that a client that ran for a long time is restarted soon.
func TestBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("a")
		const attempts = 12
		s.lives = func(string) (time.Duration, End) {
			switch len(s.starts) {
			case attempts:
				return time.Hour, End{Code: failed}
			case attempts + 2:
				return time.Second, End{}
			}
			return time.Millisecond, End{Code: failed}
		}
		if err := s.Supervise(t.Context()); err != nil {
			t.Fatal(err)
		}
		limit := firstRestart
		for i := 1; i < len(s.began); i++ {
			if i == attempts {
				limit = firstRestart
			}
			wait := s.began[i].Sub(s.began[i-1]) % time.Hour
			if wait < limit/2 || wait > limit+time.Second {
				t.Errorf("start %d came after %v, want %v to %v", i+1, wait, limit/2, limit)
			}
			limit = min(2*limit, longestPause)
		}
		if len(s.starts) != attempts+2 {
			t.Errorf("%d starts; %s", len(s.starts), s.log.String())
		}
	})
}

// TestSaysWhy checks that a log in JSON also contains the reason why a client ended.
func TestSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("a")
		s.Logger = slog.New(slog.NewJSONHandler(&s.log, nil))
		s.lives = func(string) (time.Duration, End) {
			if len(s.starts) == 1 {
				return time.Second, End{Code: failed}
			}
			return time.Second, End{}
		}
		if err := s.Supervise(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.log.String(), `"because":"`) {
			t.Errorf("no reason in %s", s.log.String())
		}
	})
}

// TestTakesTheFirstOpen checks that serve takes the runs one after the other, in their order,
// and ends with the last run.
func TestTakesTheFirstOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("paused", "first", "second", "finished")
		s.see("paused", Outlook{Prospect: Later, Reason: "paused"})
		s.see("finished", Outlook{Prospect: Over, Reason: "it is finished"})
		s.lives = func(name string) (time.Duration, End) {
			if name == "second" {
				s.see("paused", Outlook{})
			}
			return time.Hour, End{}
		}
		if err := s.Supervise(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"first", "second", "paused"}; !slices.Equal(s.starts, want) || s.left != nil {
			t.Errorf("took part in %v, want %v; left %v", s.starts, want, s.left)
		}
	})
}

// TestHopeless checks that serve excludes runs in which a restart does not help, and reports them at the
// end.
func TestHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("usage", "lie", "genesis", "good")
		s.see("genesis", Outlook{Prospect: Hopeless, Reason: "another hash"})
		s.lives = func(name string) (time.Duration, End) {
			return time.Second, End{Code: map[string]int{"usage": wrongInput, "lie": hostFault}[name]}
		}
		err := s.Supervise(t.Context())
		golden.Message(t, "three runs", err)
		if want := []string{"usage", "lie", "good"}; !slices.Equal(s.starts, want) {
			t.Errorf("started %v, want %v", s.starts, want)
		}
	})
}

// TestYields checks that other runs get their turn if clients of a run end again and again,
// and that the run then gets its turn again.
func TestYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("bad", "good")
		s.lives = func(name string) (time.Duration, End) {
			if name == "good" {
				return time.Hour, End{}
			}
			if len(s.starts) > endsInARow+1 {
				s.see(name, Outlook{Prospect: Over, Reason: "it is finished"})
			}
			return time.Second, End{Code: -1, Text: "signal: killed"}
		}
		if err := s.Supervise(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"bad", "bad", "bad", "bad", "good", "bad"}; !slices.Equal(s.starts, want) {
			t.Errorf("started %v, want %v", s.starts, want)
		}
	})
}

// TestLeaves checks that a client leaves a run that is closed for long if a different run is
// open, and stays if none is open.
func TestLeaves(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a", "b")
			s.deaf = deaf
			s.see("b", Outlook{Prospect: Later, Reason: "paused"})
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			time.AfterFunc(30*time.Minute, func() { s.see("a", Outlook{Prospect: Later, Reason: "paused"}) })
			time.AfterFunc(2*time.Hour, func() { s.see("b", Outlook{}) })
			time.AfterFunc(3*time.Hour, func() { s.deaf = false; cancel() })
			s.lives = func(string) (time.Duration, End) { return 0, End{} }
			if err := s.Supervise(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if !slices.Equal(s.starts, []string{"a", "b"}) || !slices.Equal(s.left, []string{"a", "b"}) || (len(s.killed) == 1) != deaf {
				t.Errorf("started %v, left %v, killed %v", s.starts, s.left, s.killed)
			}
			if at := s.began[1].Sub(began); at < 2*time.Hour || at > 2*time.Hour+politeEnd+3*lookEvery {
				t.Errorf("went to the second after %v", at)
			}
		})
	}
}

// TestAnotherServer checks that serve never joins a run at whose address a different server
// answers. If serve has reached the right server before, it waits for that server. Otherwise, while
// there are other runs, it checks the address from time to time.
func TestAnotherServer(t *testing.T) {
	for _, met := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a", "b")
			other := Outlook{Prospect: OtherServer, Reason: "another key"}
			s.Runs[0].met = met
			s.see("a", other)
			s.lives = func(name string) (time.Duration, End) {
				if len(s.starts) == 1 {
					s.see("b", Outlook{Prospect: Later, Reason: "paused"})
					time.AfterFunc(time.Hour, func() { s.see("a", Outlook{}) })
					return 10 * time.Minute, End{Code: failed}
				}
				s.see("b", Outlook{Prospect: Over, Reason: "it is finished"})
				return time.Minute, End{}
			}
			began := time.Now()
			if err := s.Supervise(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.starts, []string{"b", "a"}) {
				t.Fatalf("took part in %v", s.starts)
			}
			limit := time.Hour + 2*lookEvery
			if !met {
				limit += asideEvery
			}
			if at := s.began[1].Sub(began); at < time.Hour || at > limit {
				t.Errorf("met before: %v; joined after %v, want at most %v", met, at, limit)
			}
			if n := strings.Count(s.log.String(), "another key"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // this is the only run, and its server was never reached: the link is wrong
		s := newServed("a")
		s.see("a", Outlook{Prospect: OtherServer, Reason: "another key"})
		if err := s.Supervise(t.Context()); err == nil || !strings.Contains(err.Error(), "another key") || s.starts != nil {
			t.Errorf("%v, took part in %v", err, s.starts)
		}
	})
}

// TestLeavesARunWithoutProgress checks that a run that waits for members without any progress
// does not hold a machine forever while a different run trains. A run that gains members, or that
// completes rounds, keeps the machine.
func TestLeavesARunWithoutProgress(t *testing.T) {
	training := Progress{Step: 9, Clients: 3, Training: true}
	for name, test := range map[string]struct {
		a, b  func(hours int) Progress
		after int // hours; 0: never
	}{
		"no client comes":           {func(int) Progress { return Progress{Clients: 1} }, func(int) Progress { return training }, 6},
		"a client comes and goes":   {func(h int) Progress { return Progress{Clients: 1 + h%2} }, func(int) Progress { return training }, 7},
		"one comes after the other": {func(h int) Progress { return Progress{Clients: 1 + h/5} }, func(int) Progress { return training }, 0},
		"rounds take hours":         {func(int) Progress { return Progress{Clients: 3, Training: true} }, func(int) Progress { return training }, 0},
		"the other one waits too":   {func(int) Progress { return Progress{Clients: 1} }, func(int) Progress { return Progress{} }, 0},
		"the other one begins":      {func(int) Progress { return Progress{Clients: 1} }, func(h int) Progress { return Progress{Training: h >= 20} }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := newServed("a", "b"), time.Now()
				hours := func() int { return int(time.Since(began) / time.Hour) }
				s.Runs[0].Look = func(context.Context) Outlook { return Outlook{Progress: test.a(hours())} }
				s.Runs[1].Look = func(context.Context) Outlook { return Outlook{Progress: test.b(hours())} }
				s.lives = func(string) (time.Duration, End) { return 0, End{} }
				ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
				defer cancel()
				if err := s.Supervise(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if test.after == 0 {
					if len(s.starts) != 1 {
						t.Errorf("changed to the other run after %v", s.began[1].Sub(began))
					}
					return
				}
				if len(s.starts) != 2 {
					t.Fatalf("took part in %v", s.starts)
				}
				if at := s.began[1].Sub(began); at < time.Duration(test.after)*time.Hour || at > time.Duration(test.after)*time.Hour+3*lookEvery {
					t.Errorf("changed to the other run after %v, want %d hours", at, test.after)
				}
			})
		})
	}
}

// TestInterrupt checks that serve passes the first interrupt on and waits for the client, and
// that the second interrupt kills it.
func TestInterrupt(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a")
			s.deaf = deaf
			s.lives = func(string) (time.Duration, End) { return 0, End{} }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Hour, cancel)
			time.AfterFunc(24*time.Hour, func() { close(s.impatient) })
			began := time.Now()
			if err := s.Supervise(ctx); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if took := time.Since(began); (took == 24*time.Hour) != deaf || (took == time.Hour) == deaf || len(s.left) != 1 || (len(s.killed) == 1) != deaf {
				t.Errorf("ended after %v, left %v, killed %v", took, s.left, s.killed)
			}
			time.Sleep(24 * time.Hour) // the second interrupt comes even if serve is not waiting for it
		})
	}
}

// TestJudge checks that judge distinguishes the states in which no client can join a run, and the
// states in which only this key cannot.
func TestJudge(t *testing.T) {
	key := backendtest.Key(1).ID()
	me := coordinator.ClientID(key)
	for name, s := range map[string]struct {
		coordinator.State
		want Prospect
	}{
		"finished":  {coordinator.State{RunState: coordinator.Finished}, Over},
		"closed":    {coordinator.State{RunState: coordinator.Paused, Closed: true}, Over},
		"paused":    {coordinator.State{RunState: coordinator.Paused}, Later},
		"not begun": {coordinator.State{}, Later},
		"without permission": {coordinator.State{RunState: coordinator.RoundTrain, Authority: coordinator.Authority{
			Permissioned: true}}, Later},
		"ejected": {coordinator.State{RunState: coordinator.RoundTrain, Progress: coordinator.Progress{Epoch: 2}, Authority: coordinator.Authority{
			Ejections: []coordinator.Ejection{{Client: me, Until: 3}}}}, Later},
		"open": {coordinator.State{RunState: coordinator.RoundTrain, Progress: coordinator.Progress{Epoch: 3}, Authority: coordinator.Authority{
			Permissioned: true, Authorizations: []coordinator.Authorization{{Grantee: me}},
			Ejections: []coordinator.Ejection{{Client: me, Until: 3}, {Client: coordinator.ClientID{9}, Until: 9}}}}, Open},
	} {
		if got := Judge(&s.State, &key, s.Authority.MayJoin(me)); got.Prospect != s.want {
			t.Errorf("%s: got %+v; want got.Prospect == s.want", name, got)
		} else {
			golden.Message(t, name, errors.New(got.Reason))
		}
	}
	if got := Judge(&coordinator.State{RunState: coordinator.Warmup, Authority: coordinator.Authority{Permissioned: true}}, nil, true); got.Prospect != Open {
		t.Errorf("with a fresh key: %+v", got)
	}
}

// writer passes what is written to a function.
type writer func(line []byte)

func (w writer) Write(line []byte) (int, error) {
	w(line)
	return len(line), nil
}

const servedClient = "PSYCHE_TEST_SERVED_CLIENT"

// TestServedClient is not a test. It is the client of TestServedProcess.
func TestServedClient(t *testing.T) {
	switch os.Getenv(servedClient) {
	case "":
		t.Skip("needs " + servedClient)
	case "ends":
		os.Exit(failed)
	case "dies":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "crashes":
		_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
		go panic("a bug")
		select {}
	}
	ctx, stop := signals.Context()
	defer stop()
	fmt.Println("taking part")
	<-ctx.Done()
	fmt.Println("leaving")
	if os.Getenv(servedClient) == "leaves" {
		os.Exit(interrupted)
	}
	select {} // until it is killed
}

// TestServedProcess checks that serve reports the kind of a client's end, that it asks the client
// to leave only once, and that the client keeps the lock as long as it lives.
func TestServedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for does, want := range map[string]struct {
		End
		leave bool
	}{
		"ends":    {End{Code: failed}, false},
		"dies":    {End{Code: -1, Text: "signal: killed"}, false},
		"crashes": {End{Code: -1, Text: "signal: aborted"}, false},
		"leaves":  {End{Code: interrupted}, true},
		"stays":   {End{Code: -1, Text: "signal: killed"}, true},
	} {
		t.Setenv(servedClient, does)
		lock, err := filelock.Open(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 8)
		out := writer(func(line []byte) { said <- string(line) })
		c, err := Start(os.Args[0], []string{"-test.run=^TestServedClient$"}, lock, out, os.Stderr)
		if err == nil {
			err = lock.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if want.leave {
			if line := <-said; !strings.HasPrefix(line, "taking part") {
				t.Errorf("%s: it printed %q", does, line)
			}
			if again, err := filelock.Open(path, 0o600); !errors.Is(err, filelock.ErrHeld) {
				t.Errorf("%s: the lock is free while its client lives: %v, %v", does, again, err)
			}
			enough := make(chan time.Time)
			if does == "stays" {
				go func() { <-said; close(enough) }()
			}
			c.leave(enough, nil)
		}
		<-c.Ended
		c.End.Text = strings.TrimSuffix(c.End.Text, " (core dumped)")
		if c.End != want.End {
			t.Errorf("%s: %+v, want %+v", does, c.End, want.End)
		}
	}
}
