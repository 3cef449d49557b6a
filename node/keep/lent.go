package keep

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/psyche-go/psyche/files/checkpoint"
)

// ErrNotTaken means that a lent model was not written, because its owner could not wait any longer.
var ErrNotTaken = errors.New("the disk was too slow to save the model in time")

// lentPiece is the number of bytes of a lent model that are copied at once.
const lentPiece = 1 << 20

// Lent is a model that is written to the disk from its owner's memory while the owner waits. The
// owner does not wait for the disk itself: the data is copied piece by piece, and the owner can
// take back the rest at any moment.
type Lent struct {
	offered chan checkpoint.Snapshot
	ended   chan struct{} // closed when it is no longer lent
	written chan error    // result of the writing, or nil when everything was copied

	mu    sync.Mutex
	over  bool
	left  int // bytes not yet copied
	piece []byte
}

// NewLent returns a Lent without a model.
func NewLent() *Lent {
	return &Lent{offered: make(chan checkpoint.Snapshot, 1), ended: make(chan struct{}), written: make(chan error, 2)}
}

// Offer provides the model. It returns when the model was copied or cannot be copied, or when ctx
// is done. After that the model is not read any more.
func (l *Lent) Offer(ctx context.Context, s checkpoint.Snapshot) error {
	defer l.End()
	for _, tensor := range s.Tensors {
		l.left += len(tensor.Data)
	}
	l.offered <- s
	select {
	case err := <-l.written:
		return err
	case <-ctx.Done():
		return ErrNotTaken
	}
}

// End takes the model back.
func (l *Lent) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		close(l.ended)
	}
}

// through copies the data of a tensor to a file, as long as the model is lent.
func (l *Lent) through(w io.Writer, data []byte) error {
	if l.piece == nil {
		l.piece = make([]byte, lentPiece)
	}
	for len(data) > 0 {
		l.mu.Lock()
		if l.over {
			l.mu.Unlock()
			return ErrNotTaken
		}
		n := copy(l.piece, data)
		l.left -= n
		all := l.left == 0
		l.mu.Unlock()
		if _, err := w.Write(l.piece[:n]); err != nil {
			return err
		}
		if all {
			l.written <- nil
		}
		data = data[n:]
	}
	return nil
}

// Save writes the model to a folder when it is offered: to Folder.Intermediate, or to Folder.Pending, from
// where Saver.Take moves it to its final place. When the model's files are on the disk, Save calls hash
// for their digest, and adds the digest to the returned facts. The error is ErrNotTaken if the owner
// took the model back.
func (l *Lent) Save(ctx context.Context, dir string, facts checkpoint.Facts, hash func(s checkpoint.Snapshot, dir string) (digest [32]byte, err error)) (checkpoint.Facts, error) {
	var s checkpoint.Snapshot
	select {
	case s = <-l.offered:
	case <-l.ended:
		return facts, ErrNotTaken
	case <-ctx.Done():
		return facts, ErrNotTaken
	}
	noted := checkpoint.Extra{Name: checkpoint.FactsFile, Write: func(path string) error {
		digest, err := hash(s, filepath.Dir(path))
		if err != nil {
			return err
		}
		facts.Digest = hex.EncodeToString(digest[:])
		return facts.Extra().Write(path)
	}}
	err := os.MkdirAll(filepath.Dir(dir), 0o755)
	if err == nil {
		err = checkpoint.WriteDirThrough(dir, s, l.through, noted)
	}
	if err != nil {
		l.written <- err
	}
	return facts, err
}
