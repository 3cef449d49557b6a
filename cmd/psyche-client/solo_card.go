package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/hub"
)

// writeCard writes the model card of the saved training. A failure costs only the card.
func (s *solo) writeCard(ctx context.Context) {
	c := &s.options
	card := checkpoint.Card{
		Title: filepath.Base(c.Save), License: licenseOf(c.Model), Optimizer: c.Optimizer,
		Data: []checkpoint.CardSource{{What: "token files", Where: filepath.Base(c.DataPath)}},
		Loss: s.loss, LossOf: fmt.Sprintf("of the batch of step %d", s.step),
	}
	card.Step, card.DataIndex, card.MaxSeqLen = s.step, s.dataIndex, uint32(c.SeqLen)
	if _, err := os.Stat(c.Model); err != nil && hub.CheckRepo(c.Model) == nil {
		card.BaseModel = c.Model
	}
	digest, err := checkpoint.DigestDir(ctx, c.Save, nil)
	if err == nil {
		card.Digest = fmt.Sprintf("%x", digest)
		err = checkpoint.WriteCard(c.Save, card)
	}
	if err != nil {
		s.terminal.logger().Warn("cannot write the model card", "folder", c.Save, "err", err)
	}
}

// maxCardHead is the number of lines of a model card that are searched for its license.
const maxCardHead = 200

// licenseOf returns the license in the model card of a folder, or an empty string.
func licenseOf(dir string) string {
	file, err := os.Open(filepath.Join(dir, checkpoint.CardFile))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	if !lines.Scan() || strings.TrimSpace(lines.Text()) != "---" {
		return ""
	}
	for range maxCardHead {
		if !lines.Scan() || strings.TrimSpace(lines.Text()) == "---" {
			break
		}
		if value, found := strings.CutPrefix(lines.Text(), "license:"); found {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}
