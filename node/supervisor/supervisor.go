package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/pause"
)

const (
	lookEvery  = time.Minute   // interval of checks of a closed run, or of the current run
	asideEvery = time.Hour     // interval of checks of a run whose address now has a different server, if there are other runs
	idleLimit  = 6 * time.Hour // maximum idle time of a waiting run while another run trains

	firstRestart = 5 * time.Second // pause before a client is restarted; it doubles with each consecutive exit
	longestPause = 10 * time.Minute
	endsInARow   = 4                // consecutive exits of a run's clients before other runs get a turn
	longLife     = 10 * time.Minute // a client that ran this long starts a new count of consecutive exits
	politeEnd    = 10 * time.Minute // time for a client to leave a run in favour of another run
)

// Supervisor keeps a machine in one of several runs.
type Supervisor struct {
	Runs      []*Run           // in order of preference
	Patience  time.Duration    // time that a run may be closed before its client moves to another open run
	ExitCodes map[int]ExitCode // of the clients; 0 means that a run is over
	Random    *rand.Rand
	Impatient <-chan struct{} // closed when a client has to end at once
	Logger    *slog.Logger
}

// ExitCode describes an exit code of a client.
type ExitCode struct {
	Meaning string
	Final   bool // a restart does not help
}

// Run is a run that this machine may join, with the results of earlier attempts.
type Run struct {
	ID    string
	Given string                        // source of the run, for errors
	Look  func(context.Context) Outlook // checks the run
	Start func() (*Client, error)       // starts a client of the run

	failures  int       // consecutive ends of clients
	notBefore time.Time // earliest time of the next check
	aside     string    // reason why it is not tried any more; empty: it is tried
	over      bool      // aside is set because the run is over
	final     bool      // aside is permanent
	met       bool      // its host was reached, so the link is correct
	said      string    // last message logged about it
	progress  Progress  // when it was last open
}

// look checks the run.
func (r *Run) look(ctx context.Context) Outlook {
	seen := r.Look(ctx)
	r.met = r.met || seen.Met
	return seen
}

// Supervise returns nil when no run is left, or the cause of ctx when ctx ends.
func (s *Supervisor) Supervise(ctx context.Context) error {
	for context.Cause(ctx) == nil {
		r, err := s.next(ctx)
		if err != nil {
			return err
		}
		if r == nil {
			return s.verdict()
		}
		if err := s.stay(ctx, r); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// next waits until a run is open, and returns the first open run. It returns nil if no run can ever be
// open again.
func (s *Supervisor) next(ctx context.Context) (*Run, error) {
	for {
		var soonest time.Time
		for _, r := range s.Runs {
			if !r.final && !time.Now().Before(r.notBefore) && s.isOpen(ctx, r) {
				return r, nil
			}
			if r.aside == "" && (soonest.IsZero() || r.notBefore.Before(soonest)) {
				soonest = r.notBefore
			}
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
		}
		if soonest.IsZero() {
			return nil, nil
		}
		if err := pause.For(ctx, time.Until(soonest)); err != nil {
			return nil, err
		}
	}
}

// isOpen checks whether a run is open, and logs changes.
func (s *Supervisor) isOpen(ctx context.Context, r *Run) bool {
	seen := r.look(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case seen.Prospect == Open:
		r.said, r.aside, r.progress = "", "", seen.Progress
		return true
	case seen.Prospect == Later, seen.Prospect == OtherServer && r.met:
		r.aside = ""
		if r.said != seen.Reason {
			r.said = seen.Reason
			s.Logger.Warn("this run is not open now; checking again every minute", "run", r.ID, "because", seen.Reason)
		}
		r.notBefore = time.Now().Add(s.around(lookEvery))
		return false
	}
	r.notBefore = time.Now().Add(s.around(asideEvery))
	if r.aside != seen.Reason {
		s.putAside(r, seen.Reason, seen.Prospect == Over, seen.Prospect != OtherServer)
	}
	return false
}

// putAside stops trying a run and logs the reason: permanently, or until its server is back at the
// link's address.
func (s *Supervisor) putAside(r *Run, reason string, isOver, isFinal bool) {
	r.aside, r.over, r.final = reason, isOver, isFinal
	switch {
	case isOver:
		s.Logger.Info("this run is over", "run", r.ID, "because", reason)
	case isFinal:
		s.Logger.Error("this run will not be tried again; fix the problem and restart this command", "run", r.ID, "because", reason)
	default:
		s.Logger.Error("this run cannot be joined with this link; checking again every hour while there are other runs", "run", r.ID, "because", reason)
	}
}

// verdict returns an error that lists the runs that could not be joined, or nil if all runs are over.
func (s *Supervisor) verdict() error {
	var wrong []string
	for _, r := range s.Runs {
		if !r.over {
			wrong = append(wrong, fmt.Sprintf("%s (run %s): %s", r.Given, r.ID, r.aside))
		}
	}
	if len(wrong) > 0 {
		return errors.New("no run is left to join: " + strings.Join(wrong, "; "))
	}
	s.Logger.Info("all runs are over", "runs", len(s.Runs))
	return nil
}

// stay takes part in a run until it is over or closed, or until its clients end too often and there
// are other runs. It returns an error only if ctx ends.
func (s *Supervisor) stay(ctx context.Context, r *Run) error {
	for {
		began := time.Now()
		end, left := s.live(ctx, r)
		lived := time.Since(began)
		switch err := context.Cause(ctx); {
		case err != nil:
			return err
		case left:
			r.notBefore = time.Now().Add(lookEvery)
			return nil
		case s.ExitCodes[end.Code].Final:
			s.putAside(r, s.ExitCodes[end.Code].Meaning, false, true)
			return nil
		case end.Code == 0:
			s.putAside(r, "its client reached the end of the run", true, true)
			return nil
		}
		if lived >= longLife {
			r.failures = 0
		}
		r.failures++
		wait := s.backOff(r.failures)
		r.notBefore = time.Now().Add(wait)
		s.Logger.Warn("the client exited before its run ended", "run", r.ID, "after", lived.Round(time.Second), "because", s.explain(end), "retry_in", wait.Round(time.Second))
		if r.failures >= endsInARow && s.others(r) {
			return nil
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		if !s.isOpen(ctx, r) {
			return nil
		}
	}
}

// live starts a client and returns its result. left is true if the keeper ended the client, because
// its run was closed or idle for too long and another run is open.
func (s *Supervisor) live(ctx context.Context, r *Run) (end End, left bool) {
	client, err := r.Start()
	if err != nil {
		return End{Code: -1, Text: err.Error()}, false
	}
	s.Logger.Info("a client takes part", "run", r.ID, "pid", client.PID)
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	w := watch{supervisor: s, run: r, idle: time.Now(), before: r.progress}
	for {
		select {
		case <-client.Ended:
			return client.End, false
		case <-ctx.Done():
			s.Logger.Info("the client leaves the run; a second interrupt ends it at once", "run", r.ID)
			client.leave(nil, s.Impatient)
			return client.End, false
		case <-looks.C:
			if other, reason := w.look(ctx); other != nil {
				s.Logger.Warn("the client moves to another open run", "run", r.ID, "because", reason, "for", other.ID)
				client.leave(time.After(politeEnd), s.Impatient)
				return client.End, true
			}
		}
	}
}

// explain describes the end of a client for people.
func (s *Supervisor) explain(end End) string {
	meaning := s.ExitCodes[end.Code].Meaning
	switch {
	case end.Text != "":
		return end.Text
	case meaning == "":
		return fmt.Sprintf("exit code %d", end.Code)
	}
	return fmt.Sprintf("%s (exit code %d)", meaning, end.Code)
}

// watch is the recent state of the current run.
type watch struct {
	supervisor *Supervisor
	run        *Run
	closed     time.Time // start of the time in which it was not open; zero: it is open
	idle       time.Time // start of the time in which it was idle
	before     Progress  // at the last change, with the highest number of clients seen
}

// look returns another run to switch to, and the reason: the current run was closed for too long,
// or waited for members for even longer without any change while the other run trains.
func (w *watch) look(ctx context.Context) (other *Run, reason string) {
	if !w.supervisor.others(w.run) {
		return nil, ""
	}
	seen, now := w.run.look(ctx), time.Now()
	switch seen.Prospect {
	case Open:
		w.closed = time.Time{}
		if p := seen.Progress; p.Training || p.since(w.before) {
			w.idle, w.before = now, Progress{Step: p.Step, Clients: max(p.Clients, w.before.Clients)}
		}
		if now.Sub(w.idle) < idleLimit {
			return nil, ""
		}
		return w.supervisor.better(ctx, w.run, func(p Progress) bool { return p.Training }), "it waits for members and has been idle for " + idleLimit.String()
	case Later, OtherServer:
		if w.closed.IsZero() {
			w.closed = now
		}
		if now.Sub(w.closed) < w.supervisor.Patience {
			return nil, ""
		}
		return w.supervisor.better(ctx, w.run, func(Progress) bool { return true }), seen.Reason
	}
	w.closed = time.Time{} // a client ends by itself in a run that is over
	return nil, ""
}

// others reports whether a run other than r remains to be tried, now or later.
func (s *Supervisor) others(r *Run) bool {
	for _, other := range s.Runs {
		if other != r && other.aside == "" {
			return true
		}
	}
	return false
}

// better returns another open run whose progress satisfies wanted.
func (s *Supervisor) better(ctx context.Context, r *Run, wanted func(Progress) bool) *Run {
	for _, other := range s.Runs {
		if other != r && !other.final && !time.Now().Before(other.notBefore) && s.isOpen(ctx, other) && wanted(other.progress) {
			return other
		}
	}
	return nil
}

// backOff returns the pause after a number of consecutive exits.
func (s *Supervisor) backOff(ends int) time.Duration {
	wait := firstRestart
	for range ends - 1 {
		wait = min(2*wait, longestPause)
	}
	return s.around(wait)
}

// around returns a random duration from the upper half of d, so that machines that lost the same
// server do not all return at once.
func (s *Supervisor) around(d time.Duration) time.Duration {
	return d - time.Duration(s.Random.Int64N(int64(cmp.Or(d/2, 1))))
}
