package tui

import (
	"context"
	"log/slog"
	"strings"
)

// lineHandler passes log records to a display.
type lineHandler struct {
	take  func(Line)
	level slog.Leveler
	attrs string
	group string
}

// Enabled implements slog.Handler.
func (h lineHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// Handle implements slog.Handler.
func (h lineHandler) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	text.WriteString(r.Message + h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		text.WriteString(h.attr(a))
		return true
	})
	h.take(Line{r.Time, r.Level, text.String()})
	return nil
}

func (h lineHandler) attr(a slog.Attr) string {
	return " " + h.group + a.Key + "=" + a.Value.Resolve().String()
}

// WithAttrs implements slog.Handler.
func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.attrs += h.attr(a)
	}
	return h
}

// WithGroup implements slog.Handler.
func (h lineHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.group += name + "."
	}
	return h
}
