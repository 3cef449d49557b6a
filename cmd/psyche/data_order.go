package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/web"
)

// maxOrder limits --order.
const maxOrder = 100_000_000

// printOrder prints the locations of a run's sequences, in order.
func (c dataInspect) printOrder(ctx context.Context, to console) error {
	switch {
	case c.Order == 0:
		return errors.New("--shuffle needs --order N, the number of indices to print")
	case c.Order > maxOrder:
		return fmt.Errorf("--order %d, want at most %d", c.Order, maxOrder)
	}
	out := bufio.NewWriter(to.out)
	_, _ = fmt.Fprintln(out, "index\tsource\tpass\tsequence\ttoken\tfile")
	print := c.orderOfFolder
	if strings.HasPrefix(c.Dir, "http://") || strings.HasPrefix(c.Dir, "https://") {
		print = c.orderOfMix
	}
	if err := print(ctx, out); err != nil {
		return err
	}
	return out.Flush()
}

func (c dataInspect) orderOfFolder(_ context.Context, out *bufio.Writer) (err error) {
	described, _, err := manifest.Read(c.Dir)
	if err != nil {
		return err
	}
	o := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: c.VocabSize}
	if o.VocabSize == 0 {
		o.VocabSize = described.Tokenizer.VocabSize
	}
	if c.Shuffle != 0 {
		o.Seed = new([32]byte)
		binary.LittleEndian.PutUint64(o.Seed[:], c.Shuffle)
	}
	folder, err := local.Open(c.Dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	for index := c.Position; index-c.Position < c.Order; index++ {
		at := folder.Place(index)
		_, _ = fmt.Fprintf(out, "%d\t0\t%d\t%d\t%d\t%s\n", index, at.Pass, at.Sequence, at.Token, at.File)
	}
	return nil
}

func (c dataInspect) orderOfMix(ctx context.Context, out *bufio.Writer) error {
	if c.Shuffle != 0 {
		return errors.New("--shuffle applies to a folder only: a mixture's JSON file contains the seeds")
	}
	o := data.Options{SeqLen: c.SeqLen, VocabSize: c.VocabSize, Web: web.Options{Inner: c.AllowInnerData}}
	return data.MixOrder(ctx, c.Dir, o, c.Position, c.Order, func(index uint64, at data.MixedPlace) error {
		_, err := fmt.Fprintf(out, "%d\t%d\t%d\t%d\t%d\t%s\n", index, at.Source, at.Pass, at.Sequence, at.Token, web.Redact(at.File))
		return err
	})
}
