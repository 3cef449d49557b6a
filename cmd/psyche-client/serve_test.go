package main

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
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/signals"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// served is a keeper of the runs a, b and so on. A test plays its clients and hosts.
type served struct {
	keeper
	access    sync.Mutex // to seen, which timers of the test change
	seen      map[string]outlook
	lives     func(name string) (time.Duration, ending) // lifetime and end of the next client; a lifetime of 0 never ends
	starts    []string
	began     []time.Time
	left      []string // clients that were asked to leave
	killed    []string
	deaf      bool // a client that is asked to leave stays
	impatient chan struct{}
	log       strings.Builder
}

// see sets the result of the next checks of a run.
func (s *served) see(name string, o outlook) {
	s.access.Lock()
	defer s.access.Unlock()
	s.seen[name] = o
}

func newServed(names ...string) *served {
	s := &served{seen: make(map[string]outlook), impatient: make(chan struct{})}
	s.keeper = keeper{
		patience: 10 * time.Minute, random: rand.New(rand.NewPCG(1, 2)), impatient: s.impatient, logger: slog.New(slog.NewTextHandler(&s.log, nil)),
		look: func(_ context.Context, r *servedRun) outlook {
			s.access.Lock()
			seen := s.seen[r.joins.RunID]
			s.access.Unlock()
			r.met = r.met || seen.prospect == isOpen
			return seen
		},
	}
	for i, name := range names {
		s.runs = append(s.runs, &servedRun{given: fmt.Sprintf("link %d", i+1), joins: trainCommand{RunID: name}})
	}
	s.start = func(r *servedRun) (*child, error) {
		name := r.joins.RunID
		s.starts, s.began = append(s.starts, name), append(s.began, time.Now())
		life, end := s.lives(name)
		c := &child{ended: make(chan struct{})}
		finish := func(e ending) {
			select {
			case <-c.ended:
			default:
				c.end = e
				close(c.ended)
			}
		}
		if life > 0 {
			time.AfterFunc(life, func() { finish(end) })
		}
		c.interrupt = func() error {
			s.left = append(s.left, name)
			if !s.deaf {
				finish(ending{code: exitInterrupted})
			}
			return nil
		}
		c.kill = func() error {
			s.killed = append(s.killed, name)
			finish(ending{code: -1, text: "signal: killed"})
			return nil
		}
		return c, nil
	}
	return s
}

// TestServeBacksOff checks that a client that ends at once is restarted after increasing pauses, up
// to a bound, and is restarted soon after it ran for long.
func TestServeBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("a")
		const attempts = 12
		s.lives = func(string) (time.Duration, ending) {
			switch len(s.starts) {
			case attempts:
				return time.Hour, ending{code: exitConnection}
			case attempts + 2:
				return time.Second, ending{}
			}
			return time.Millisecond, ending{code: exitFailure}
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		most := firstRestart
		for i := 1; i < len(s.began); i++ {
			if i == attempts {
				most = firstRestart
			}
			wait := s.began[i].Sub(s.began[i-1]) % time.Hour
			if wait < most/2 || wait > most+time.Second {
				t.Errorf("start %d came after %v, want %v to %v", i+1, wait, most/2, most)
			}
			most = min(2*most, longestPause)
		}
		if len(s.starts) != attempts+2 {
			t.Errorf("%d starts; %s", len(s.starts), s.log.String())
		}
	})
}

// TestServeSaysWhy checks that a log in JSON also contains the reason why a client ended.
func TestServeSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("a")
		s.logger = slog.New(slog.NewJSONHandler(&s.log, nil))
		s.lives = func(string) (time.Duration, ending) {
			if len(s.starts) == 1 {
				return time.Second, ending{code: exitConnection}
			}
			return time.Second, ending{}
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(s.log.String(), `"because":"`) {
			t.Errorf("no reason in %s", s.log.String())
		}
	})
}

// TestServeTakesTheFirstOpen checks that serve takes the runs one after the other, in their order,
// and ends with the last run.
func TestServeTakesTheFirstOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("paused", "first", "second", "finished")
		s.see("paused", outlook{prospect: isLater, reason: "paused"})
		s.see("finished", outlook{prospect: isOver, reason: "it is finished"})
		s.lives = func(name string) (time.Duration, ending) {
			if name == "second" {
				s.see("paused", outlook{})
			}
			return time.Hour, ending{}
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"first", "second", "paused"}; !slices.Equal(s.starts, want) || s.left != nil {
			t.Errorf("took part in %v, want %v; left %v", s.starts, want, s.left)
		}
	})
}

// TestServeHopeless checks that runs in which no restart helps are put aside and reported at the
// end.
func TestServeHopeless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("usage", "lie", "genesis", "good")
		s.see("genesis", outlook{prospect: isHopeless, reason: "another hash"})
		s.lives = func(name string) (time.Duration, ending) {
			return time.Second, ending{code: map[string]int{"usage": exitUsage, "lie": exitHostFault}[name]}
		}
		err := s.run(t.Context())
		golden.Message(t, "three runs", err)
		if want := []string{"usage", "lie", "good"}; !slices.Equal(s.starts, want) {
			t.Errorf("started %v, want %v", s.starts, want)
		}
	})
}

// TestServeYields checks that other runs get their turn if clients of a run end again and again,
// and that the run then gets its turn again.
func TestServeYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServed("bad", "good")
		s.lives = func(name string) (time.Duration, ending) {
			if name == "good" {
				return time.Hour, ending{}
			}
			if len(s.starts) > endsInARow+1 {
				s.see(name, outlook{prospect: isOver, reason: "it is finished"})
			}
			return time.Second, ending{code: -1, text: "signal: killed"}
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if want := []string{"bad", "bad", "bad", "bad", "good", "bad"}; !slices.Equal(s.starts, want) {
			t.Errorf("started %v, want %v", s.starts, want)
		}
	})
}

// TestServeLeaves checks that a client leaves a run that is closed for long if a different run is
// open, and stays if none is open.
func TestServeLeaves(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a", "b")
			s.deaf = deaf
			s.see("b", outlook{prospect: isLater, reason: "paused"})
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			time.AfterFunc(30*time.Minute, func() { s.see("a", outlook{prospect: isLater, reason: "paused"}) })
			time.AfterFunc(2*time.Hour, func() { s.see("b", outlook{}) })
			time.AfterFunc(3*time.Hour, func() { s.deaf = false; cancel() })
			s.lives = func(string) (time.Duration, ending) { return 0, ending{} }
			if err := s.run(ctx); !errors.Is(err, context.Canceled) {
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

// TestServeAnotherServer checks that serve never joins a run at whose address a different server
// answers. If serve has reached the right server before, it waits for that server. Otherwise, while
// there are other runs, it checks the address from time to time.
func TestServeAnotherServer(t *testing.T) {
	for _, met := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a", "b")
			other := outlook{prospect: isStranger, reason: "another key"}
			s.runs[0].met = met
			s.see("a", other)
			s.lives = func(name string) (time.Duration, ending) {
				if len(s.starts) == 1 {
					s.see("b", outlook{prospect: isLater, reason: "paused"})
					time.AfterFunc(time.Hour, func() { s.see("a", outlook{}) })
					return 10 * time.Minute, ending{code: exitConnection}
				}
				s.see("b", outlook{prospect: isOver, reason: "it is finished"})
				return time.Minute, ending{}
			}
			began := time.Now()
			if err := s.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.starts, []string{"b", "a"}) {
				t.Fatalf("took part in %v", s.starts)
			}
			most := time.Hour + 2*lookEvery
			if !met {
				most += asideEvery
			}
			if at := s.began[1].Sub(began); at < time.Hour || at > most {
				t.Errorf("met before: %v; joined after %v, want at most %v", met, at, most)
			}
			if n := strings.Count(s.log.String(), "another key"); n != 1 {
				t.Errorf("logged %d times", n)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // this is the only run, and its server was never reached: the link is wrong
		s := newServed("a")
		s.see("a", outlook{prospect: isStranger, reason: "another key"})
		if err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), "another key") || s.starts != nil {
			t.Errorf("%v, took part in %v", err, s.starts)
		}
	})
}

// TestServeLeavesARunWithoutProgress checks that a run that waits for members without any progress
// does not hold a machine forever while a different run trains. A run that gains members, or that
// completes rounds, keeps the machine.
func TestServeLeavesARunWithoutProgress(t *testing.T) {
	training := doings{step: 9, clients: 3, runs: true}
	for name, test := range map[string]struct {
		a, b  func(hours int) doings
		after int // hours; 0: never
	}{
		"nobody comes":              {func(int) doings { return doings{clients: 1} }, func(int) doings { return training }, 6},
		"somebody comes and goes":   {func(h int) doings { return doings{clients: 1 + h%2} }, func(int) doings { return training }, 7},
		"one comes after the other": {func(h int) doings { return doings{clients: 1 + h/5} }, func(int) doings { return training }, 0},
		"rounds take hours":         {func(int) doings { return doings{clients: 3, runs: true} }, func(int) doings { return training }, 0},
		"the other one waits too":   {func(int) doings { return doings{clients: 1} }, func(int) doings { return doings{} }, 0},
		"the other one begins":      {func(int) doings { return doings{clients: 1} }, func(h int) doings { return doings{runs: h >= 20} }, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := newServed("a", "b"), time.Now()
				s.look = func(_ context.Context, r *servedRun) outlook {
					hours := int(time.Since(began) / time.Hour)
					if r.joins.RunID == "a" {
						return outlook{doings: test.a(hours)}
					}
					return outlook{doings: test.b(hours)}
				}
				s.lives = func(string) (time.Duration, ending) { return 0, ending{} }
				ctx, cancel := context.WithTimeout(t.Context(), 48*time.Hour)
				defer cancel()
				if err := s.run(ctx); !errors.Is(err, context.DeadlineExceeded) {
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

// TestServeInterrupt checks that serve passes the first interrupt on and waits for the client, and
// that the second interrupt kills it.
func TestServeInterrupt(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newServed("a")
			s.deaf = deaf
			s.lives = func(string) (time.Duration, ending) { return 0, ending{} }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Hour, cancel)
			time.AfterFunc(24*time.Hour, func() { close(s.impatient) })
			began := time.Now()
			if err := s.run(ctx); !errors.Is(err, context.Canceled) {
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
		want prospect
	}{
		"finished":  {coordinator.State{RunState: coordinator.Finished}, isOver},
		"closed":    {coordinator.State{RunState: coordinator.Paused, Closed: true}, isOver},
		"paused":    {coordinator.State{RunState: coordinator.Paused}, isLater},
		"not begun": {coordinator.State{}, isLater},
		"without permission": {coordinator.State{RunState: coordinator.RoundTrain, Authority: coordinator.Authority{
			Permissioned: true}}, isLater},
		"ejected": {coordinator.State{RunState: coordinator.RoundTrain, Progress: coordinator.Progress{Epoch: 2}, Authority: coordinator.Authority{
			Ejections: []coordinator.Ejection{{Client: me, Until: 3}}}}, isLater},
		"open": {coordinator.State{RunState: coordinator.RoundTrain, Progress: coordinator.Progress{Epoch: 3}, Authority: coordinator.Authority{
			Permissioned: true, Authorizations: []coordinator.Authorization{{Grantee: me}},
			Ejections: []coordinator.Ejection{{Client: me, Until: 3}, {Client: coordinator.ClientID{9}, Until: 9}}}}, isOpen},
	} {
		if got := judge(&s.State, &key, s.Authority.MayJoin(me)); got.prospect != s.want {
			t.Errorf("%s: %+v", name, got)
		} else {
			golden.Message(t, name, errors.New(got.reason))
		}
	}
	if got := judge(&coordinator.State{RunState: coordinator.Warmup, Authority: coordinator.Authority{Permissioned: true}}, nil, true); got.prospect != isOpen {
		t.Errorf("with a fresh key: %+v", got)
	}
}

// TestServeLooks queries a real server and checks that it is distinguished from a server with a
// different key or a different run.
func TestServeLooks(t *testing.T) {
	host := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis("run", 2)}})
	seen, err := tcp.Dial(t.Context(), tcp.Options{Addr: host.Address, RunID: "run", Key: backendtest.Key(1), Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	key, genesis := seen.Host(), fmt.Sprintf("%x", seen.Run())
	if err := seen.Close(); err != nil {
		t.Fatal(err)
	}
	look := func(address string, key identity.ID, genesis, run string) outlook {
		me := backendtest.Key(2).ID()
		return lookAt(t.Context(), &servedRun{key: &me, joins: trainCommand{RunID: run, hostFlags: hostFlags{ServerAddr: address, ServerKey: key.String(), Genesis: genesis}}})
	}
	if got := look(host.Address, key, genesis, "run"); got.prospect != isOpen {
		t.Errorf("%+v", got)
	}
	if got := look(host.Address, backendtest.Key(3).ID(), genesis, "run"); got.prospect != isStranger {
		t.Errorf("different server: %+v", got)
	} else {
		golden.Message(t, "another server", errors.New(got.reason), key.String(), "KEY", backendtest.Key(3).ID().String(), "WANTED")
	}
	if got := look(host.Address, key, genesis, "other"); got.prospect != isLater {
		t.Errorf("different name: %+v", got)
	} else {
		golden.Message(t, "another name", errors.New(got.reason))
	}
	if got := look(host.Address, key, strings.Repeat("1", 64), "run"); got.prospect != isHopeless {
		t.Errorf("different hash: %+v", got)
	} else {
		golden.Message(t, "another hash", errors.New(got.reason), genesis, "GENESIS")
	}
}

const servedClient = "PSYCHE_TEST_SERVED_CLIENT"

// TestServedClient is not a test. It is the client of TestServedProcess.
func TestServedClient(t *testing.T) {
	switch os.Getenv(servedClient) {
	case "":
		t.Skip("needs " + servedClient)
	case "ends":
		os.Exit(exitRefused)
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
		os.Exit(exitInterrupted)
	}
	select {} // until it is killed
}

// TestServedProcess checks that serve reports the kind of a client's end, that it asks the client
// to leave only once, and that the client keeps the lock as long as it lives.
func TestServedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for does, want := range map[string]struct {
		ending
		leave bool
	}{
		"ends":    {ending{code: exitRefused}, false},
		"dies":    {ending{code: -1, text: "signal: killed"}, false},
		"crashes": {ending{code: -1, text: "signal: aborted"}, false},
		"leaves":  {ending{code: exitInterrupted}, true},
		"stays":   {ending{code: -1, text: "signal: killed"}, true},
	} {
		t.Setenv(servedClient, does)
		lock, err := filelock.Open(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		said := make(chan string, 8)
		out := writer(func(p []byte) { said <- string(p) })
		c, err := startChild(os.Args[0], []string{"-test.run=^TestServedClient$"}, lock, terminal{out, os.Stderr})
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
		<-c.ended
		c.end.text = strings.TrimSuffix(c.end.text, " (core dumped)")
		if c.end != want.ending {
			t.Errorf("%s: %+v, want %+v", does, c.end, want.ending)
		}
	}
}

// TestServeIsAlone checks that a second psyche-client serve of the same user is refused.
func TestServeIsAlone(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	lock, err := lockServing()
	if err != nil {
		t.Fatal(err)
	}
	fail(t, exitFailure, "second process", "serve", testLink().String())
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if lock, err = lockServing(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}
