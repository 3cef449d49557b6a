package generate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

const (
	// maxPiece is how many tokens of a prompt are computed at once. Between pieces others have their turn on the engine,
	// and a text that is not wanted any more ends.
	maxPiece = 256
	// maxStep is how many tokens of all texts are computed at once: a piece of a prompt, and one each of other texts.
	maxStep = maxPiece + 64
	// maxPause bounds how long a step waits for texts that were in the one before: their readers may be slow.
	maxPause = 5 * time.Millisecond
)

// Together computes the next tokens of all texts that are generated at the same time in one pass
// through the model. This takes little longer than a pass for one text.
type Together struct {
	model model.Model

	mu      sync.Mutex
	writing int    // texts that are being written
	waiting []*ask // in the order that they came
	running bool   // a step is
	steps   int    // that have begun
	due     bool   // the next step waits for nobody
}

// ask is what a text wants computed. Its goroutine waits for done, or takes it back.
type ask struct {
	text   kvcache.Text
	done   chan struct{} // closed when there is an answer
	logits []float32
	err    error
}

// NewTogether returns a Together that generates several texts with a model at the same time.
func NewTogether(m model.Model) *Together { return &Together{model: m} }

// enter and leave count a text that is being written.
func (g *Together) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing++
}

func (g *Together) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing--
	g.start()
}

// next returns the logits of the token that follows those of a text. When it returns nobody uses the text's cache.
func (g *Together) next(ctx context.Context, t kvcache.Text) ([]float32, error) {
	a := &ask{text: t, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	g.start()
	g.mu.Unlock()
	select {
	case <-a.done:
		return a.logits, a.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, a)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	if i < 0 { // it is being computed
		<-a.done
	}
	return nil, ctx.Err()
}

// start begins a step when all that are written wait for it, or when those that do have waited long enough. g.mu is held.
func (g *Together) start() {
	if g.running || len(g.waiting) == 0 || len(g.waiting) < g.writing && !g.due {
		return
	}
	count, tokens := 0, 0
	for _, a := range g.waiting {
		if tokens += len(a.text.IDs); count > 0 && tokens > maxStep {
			break
		}
		count++
	}
	batch := slices.Clone(g.waiting[:count])
	g.waiting = slices.Delete(g.waiting, 0, count)
	g.running, g.due = true, false
	g.steps++
	go g.step(batch) // which those in it wait for
}

// step computes what a batch asks for. Nothing cancels it: what one text's reader does is nothing to the others. If that
// fails, as for want of memory, each text is computed alone, so that one with which it always fails fails alone.
func (g *Together) step(batch []*ask) {
	began := time.Now()
	if err := g.compute(batch); err != nil {
		for _, a := range batch {
			if a.err = err; len(batch) > 1 {
				a.err = g.compute([]*ask{a})
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range batch {
		close(a.done)
	}
	g.running = false
	before := g.steps
	time.AfterFunc(min(time.Since(began)/4, maxPause), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.steps == before {
			g.due = true
			g.start()
		}
	})
}

// compute gives asks their logits, or leaves their texts as they were.
func (g *Together) compute(batch []*ask) error {
	row, lengths := make([]kvcache.Text, len(batch)), make([]int64, len(batch))
	for i, a := range batch {
		row[i], lengths[i] = a.text, a.text.Cache.Len()
	}
	var logits []float32
	err := g.model.Engine().Do(context.Background(), false, func(s *torch.Scope) error {
		logits = g.model.Next(s, row...).CopyFloat32s()
		return nil
	})
	size := len(logits) / len(batch)
	for i, a := range batch {
		if err != nil {
			a.text.Cache.Shorten(lengths[i])
			continue
		}
		a.logits = logits[i*size : (i+1)*size]
	}
	return err
}
