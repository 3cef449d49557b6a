package core

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/coordinator"
)

// TestContract drives hosts at random, with crashes. It checks that published states and answers
// are durable, and that the published state follows from the durable log. Every action gets one
// answer, in order, and after a crash the log continues at the same place.
func TestContract(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, Times{WithdrawGrace: 3 * time.Second, RestartGrace: 3 * time.Second, Push: 200 * time.Millisecond}, func(c *coordinator.Config) {
			c.WarmupTime, c.MaxRoundTrainTime, c.CooldownTime = 2000, 2000, 2000
		})
		submitted := 0
		member := rapid.Custom(func(t *rapid.T) byte { return rapid.ByteRange(1, 5).Draw(t, "member") })
		check := func() {
			replayed := *r
			replayed.restart()
			if want := replayed.state().AppendTo(nil); !bytes.Equal(want, r.state().AppendTo(nil)) {
				rt.Fatal("the durable log leads to a different state")
			}
			if head := replayed.host.Log().Head(); head != r.host.Log().Head() {
				rt.Fatalf("the durable log has head %v, the host %v", head, r.host.Log().Head())
			}
		}
		finish := func() {
			r.said = nil
			r.host.Tick(r.now)
			r.flush()
			published := slices.Index(r.said, "published")
			answered := slices.Index(r.said, "answered")
			if durable := slices.Index(r.said, "durable"); durable > 0 || published >= 0 && answered >= 0 && answered < published {
				rt.Fatalf("the host did %v", r.said)
			}
			if len(r.errors) != submitted {
				rt.Fatalf("%d answers to %d actions", len(r.errors), submitted)
			}
			submitted = 0
			check()
			if published >= 0 && !bytes.Equal(r.shown[len(r.shown)-1].AppendTo(nil), r.state().AppendTo(nil)) {
				rt.Fatal("the published state is not the newest")
			}
		}
		r.flush()
		rt.Repeat(map[string]func(*rapid.T){
			"act": func(t *rapid.T) {
				s := r.state()
				r.submit(member.Draw(t, "who"), rapid.SampledFrom([]coordinator.Action{
					coordinator.Join{Epoch: s.Progress.Epoch}, coordinator.Ready{Epoch: s.Progress.Epoch},
					coordinator.WitnessRound{Step: s.Progress.Step}, coordinator.ReportCheckpoint{Step: s.Progress.Step},
					coordinator.Withdraw{Client: coordinator.ClientID(key(member.Draw(t, "whom")).ID())}, coordinator.Return{Epoch: s.Progress.Epoch},
				}).Draw(t, "what"))
				submitted++
			},
			"connect":    func(t *rapid.T) { r.connect(member.Draw(t, "who")) },
			"disconnect": func(t *rapid.T) { delete(r.live, key(member.Draw(t, "who")).ID()) },
			"digest":     func(*rapid.T) { r.host.Digest() },
			"finish":     func(*rapid.T) { finish() },
			"pass": func(t *rapid.T) {
				finish()
				sleep := r.host.Sleep(r.now, time.Duration(rapid.IntRange(1, 2000).Draw(t, "beat"))*time.Millisecond)
				r.now.Time, r.now.Clock = r.now.Time.Add(sleep), r.now.Clock+uint64(sleep.Milliseconds())
				finish()
			},
			"crash": func(t *rapid.T) {
				if rapid.Bool().Draw(t, "while the disk writes") {
					_, _ = r.host.Ready()
				}
				shown := len(r.shown)
				submitted, r.errors = 0, nil
				r.restart()
				if shown != len(r.shown) {
					rt.Fatal("a crash published something")
				}
				finish()
			},
		})
	})
}

// TestSleepMissesNothing checks that a tick before the time that Due returns has no effect.
func TestSleepMissesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, testTimes, nil)
		r.connect(1, 2, 3)
		for n := range byte(3) {
			r.submit(n+1, coordinator.Join{})
		}
		r.host.Tick(r.now)
		r.flush()
		delete(r.live, key(rapid.ByteRange(1, 3).Draw(rt, "gone")).ID())
		r.host.Tick(r.now)
		r.flush()
		for range 8 {
			due := r.host.Due(r.now)
			if due > time.Millisecond && due < time.Hour {
				early := due - time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(due)).Draw(rt, "early"))
				shown, head := len(r.shown), r.host.Log().Head()
				r.pass(early)
				if len(r.shown) != shown || r.host.Log().Head() != head {
					rt.Fatalf("the host acted %v before it was due", due-early)
				}
			}
			r.pass(min(max(r.host.Due(r.now), time.Millisecond), time.Minute))
		}
	})
}
