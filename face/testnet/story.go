package testnet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/psyche-go/psyche/record/event"
)

// noteHold is the time for which a note waits for earlier events in other clients' logs, and an ejection for its votes.
const noteHold = time.Second

// note is a sentence about a special event.
type note struct {
	at   time.Time // of the event
	text func() string
}

// say adds a note about an event.
func (t *tracker) say(at time.Time, format string, args ...any) {
	t.sayLater(at, func() string { return fmt.Sprintf(format, args...) })
}

// sayLater adds a note whose text is made when it is shown. t.mu is locked then too.
func (t *tracker) sayLater(at time.Time, text func() string) {
	t.notes = append(t.notes, note{at, text})
}

// remark adds a note that is not about a client's event. It follows the events so far.
func (t *tracker) remark(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.say(t.newest, format, args...)
}

// takeNotes removes and returns the notes that are old enough, in the order of their events; all notes if all is true.
func (t *tracker) takeNotes(now time.Time, all bool) (texts []string) {
	var due, kept []note
	for _, n := range t.notes {
		if all || now.Sub(n.at) >= noteHold {
			due = append(due, n)
		} else {
			kept = append(kept, n)
		}
	}
	slices.SortStableFunc(due, func(a, b note) int { return a.at.Compare(b.at) })
	for _, n := range due {
		texts = append(texts, n.text())
	}
	t.notes = kept
	return texts
}

// attacks describes what a cheat sends, by the name of its attack.
var attacks = map[string]string{
	"negated":       "the negative of its result",
	"copy":          "another client's result of the round before",
	"negated-copy":  "the negative of another client's result",
	"noise":         "random signs",
	"half-batch":    "a result of half of its batch",
	"another-batch": "a result of other tokens",
	"old-batch":     "a result of its first batch, again and again",
}

// attackText describes an attack.
func attackText(name string) string {
	if text, known := attacks[name]; known {
		return text
	}
	return name
}

// cheating is the progress of a cheat.
type cheating struct {
	attack   string
	first    time.Time // when it announced its first false result
	caught   time.Time // when an audit first found a false result
	ejected  time.Time
	step     uint32          // step of the run at its ejection
	found    bool            // a failed audit was reported
	announce uint32          // step of its first false result
	sent     map[uint32]bool // steps of its false results
}

// trial collects the accusations and votes against a member, up to its ejection.
type trial struct {
	accused          bool      // an accusation was reported
	ended            time.Time // of the ejection; zero: none yet
	guilty, innocent []string
}

// vote adds the vote of a juror, once.
func (t *trial) vote(juror string, guilty bool) {
	votes := &t.innocent
	if guilty {
		votes = &t.guilty
	}
	if !slices.Contains(*votes, juror) {
		*votes = append(*votes, juror)
	}
}

// addCheating reports an event's news about cheats, accusations and trials.
func (t *tracker) addCheating(id string, e event.Event) {
	c := t.cheats[id]
	switch body := e.Body.(type) {
	case event.ResultSent:
		if c == nil {
			return
		}
		if c.first.IsZero() {
			c.first, c.announce, c.sent = e.Time, body.Step, map[uint32]bool{}
			t.say(e.Time, "%s sends its first false result in round %d: %s", t.name(id), body.Step, attackText(c.attack))
		}
		c.sent[body.Step] = true
	case event.Audit:
		t.addAudit(id, e.Time, body)
	case event.Accused:
		tried := t.trialOf(body.Client)
		if !tried.ended.IsZero() && e.Time.After(tried.ended) {
			tried = &trial{}
			t.tried[body.Client] = tried
		}
		if t.cheats[body.Client] != nil && tried.accused {
			return // one accusation tells the story
		}
		tried.accused = true
		t.say(e.Time, "%s accuses %s, and a jury computes round %d again", t.name(id), t.name(body.Client), body.Step)
	case event.Voted:
		t.trialOf(body.Accused).vote(id, body.Guilty)
		if t.cheats[body.Accused] == nil { // the ejection of a cheat names the votes
			verdict := "innocent"
			if body.Guilty {
				verdict = "guilty"
			}
			t.say(e.Time, "juror %s finds %s %s of round %d%s", t.name(id), t.name(body.Accused), verdict, body.Step, detail(body.Detail))
		}
	}
}

// addAudit reports the first failed audit of a cheat by another member.
func (t *tracker) addAudit(auditor string, at time.Time, body event.Audit) {
	of := t.cheats[body.Trainer]
	if of == nil || of.found || body.Trainer == auditor || body.Outcome != "faulty" && body.Outcome != "silent" {
		return
	}
	of.found, of.caught = true, at
	if body.Outcome == "silent" {
		t.say(at, "%s asks %s to open its result of round %d, and gets no answer%s", t.name(auditor), t.name(body.Trainer), body.Step, detail(body.Detail))
		return
	}
	t.say(at, "%s computes round %d of %s again: the result is false%s", t.name(auditor), body.Step, t.name(body.Trainer), detail(body.Detail))
}

// trialOf returns the trial of a member.
func (t *tracker) trialOf(id string) *trial {
	if t.tried[id] == nil {
		t.tried[id] = &trial{}
	}
	return t.tried[id]
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// tellEjection reports an ejection with its votes, which may arrive after it.
func (t *tracker) tellEjection(at time.Time, e event.Ejected) {
	tried, since := t.trialOf(e.Client), t.ejectedCheat(at, e)
	tried.ended = at
	t.sayLater(at, func() string {
		return fmt.Sprintf("%s is ejected until epoch %d: %s%s%s", t.name(e.Client), e.Until, e.Reason, t.votes(tried), since)
	})
}

// votes names the jurors and their votes, and which of them cheat.
func (t *tracker) votes(tried *trial) (text string) {
	for _, side := range []struct {
		jurors  []string
		verdict string
	}{{tried.guilty, "guilty"}, {tried.innocent, "not guilty"}} {
		var names []string
		for _, id := range t.ids {
			if slices.Contains(side.jurors, id) {
				name := t.name(id)
				if t.cheats[id] != nil {
					name += " (itself a cheat)"
				}
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			text += fmt.Sprintf("; %s: %s", side.verdict, strings.Join(names, ", "))
		}
	}
	return text
}

// ejectedCheat records the ejection of a cheat, and returns a text with the time since its first false
// result.
func (t *tracker) ejectedCheat(at time.Time, e event.Ejected) string {
	c := t.cheats[e.Client]
	if c == nil || !c.ejected.IsZero() {
		return ""
	}
	c.ejected, c.step = at, e.Step
	if c.first.IsZero() {
		return ""
	}
	return fmt.Sprintf("; %.1f s and %d rounds after its first false result", at.Sub(c.first).Seconds(), e.Step-min(c.announce, e.Step))
}
