package main

import (
	"github.com/psyche-go/psyche/base/plain"
	"github.com/psyche-go/psyche/record/config"
)

// shownFlags set the displayed texts of a run, which are part of its definition.
type shownFlags struct {
	Name        string `placeholder:"TEXT" help:"Displayed title of the run, instead of name in the file: up to 64 bytes."`
	Description string `placeholder:"TEXT" help:"Displayed description of the run, instead of description in the file: up to 280 bytes."`
}

// describe replaces the texts of the file with the given ones.
func (f shownFlags) describe(m *config.Model) error {
	for _, text := range []struct {
		flag, given string
		size        int
		to          *string
	}{{"--name", f.Name, config.MaxName, &m.Name}, {"--description", f.Description, config.MaxDescription, &m.Description}} {
		if text.given == "" {
			continue
		}
		if err := plain.CheckName(text.given, text.size); err != nil {
			return usagef("%s: %w", text.flag, err)
		}
		*text.to = text.given
	}
	return nil
}
