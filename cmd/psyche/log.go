package main

import (
	"io"
	"log/slog"
	"os"

	"github.com/charmbracelet/x/term"
	"github.com/lmittmann/tint"
)

// logFlags are the flags of commands with a log.
type logFlags struct {
	Log      string     `aliases:"logs" enum:"console,json,none" default:"console" help:"Log format on standard error: console, json or none."`
	LogLevel slog.Level `default:"info" help:"Minimum log level: debug, info, warn or error."`
}

// logger returns the logger that the flags configure.
func (f logFlags) logger(to io.Writer) *slog.Logger {
	switch f.Log {
	case "none":
		return slog.New(slog.DiscardHandler)
	case "json":
		return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: f.LogLevel}))
	default:
		return slog.New(tint.NewTextHandler(to, &tint.Options{
			Level: f.LogLevel, TimeFormat: "15:04:05.000", NoColor: !isTerminal(to) || os.Getenv("NO_COLOR") != "",
		}))
	}
}

func isTerminal(to io.Writer) bool {
	file, ok := to.(*os.File)
	if !ok {
		return false
	}
	return term.IsTerminal(file.Fd())
}
