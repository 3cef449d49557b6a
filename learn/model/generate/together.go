package generate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
)

const (
	// maxPiece is the number of tokens of a prompt that are computed at once. Between two pieces, the
	// engine can compute other texts, and a cancelled generation ends.
	maxPiece = 256
	// maxStep is the number of tokens of all texts that are computed at once: a piece of a prompt,
	// and one for each of the other texts.
	maxStep = maxPiece + 64
	// maxPause is the maximum time that a step waits for texts of the previous step. A text with a slow
	// reader may request its next token later.
	maxPause = 5 * time.Millisecond
)

// Together computes the next tokens of all texts that are generated at the same time in one pass
// through the model. This takes little longer than a pass for one text.
type Together struct {
	model Model

	mu      sync.Mutex
	writing int    // texts being generated
	waiting []*ask // in order of arrival
	running bool   // a step is running
	steps   int    // number of started steps
	due     bool   // the next step does not wait any more
}

// ask is a request for the logits of a text's next token. The requesting goroutine waits for done,
// or withdraws the request.
type ask struct {
	text   kvcache.Text
	done   chan struct{} // closed when the answer is there
	logits []float32
	err    error
}

// NewTogether returns a Together that generates several texts with a model at the same time.
func NewTogether(m Model) *Together { return &Together{model: m} }

// enter and leave count the texts being generated.
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

// next returns the logits of the token that follows the tokens of a text. When it returns, the
// text's cache is not in use.
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

// start starts a step if all texts being generated wait for it, or if the waiting ones have waited
// long enough. The caller must hold g.mu.
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
	go g.step(batch) // the texts in it wait for it
}

// step computes the requests of a batch. It is not cancelled, because one text's reader must not
// affect the others. If it fails, for example for lack of memory, each text is computed separately,
// so that a text that always fails does not affect the others.
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

// compute answers requests with their logits, or leaves their texts unchanged.
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
