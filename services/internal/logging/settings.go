package logging

import (
	"io"
	"log/slog"
)

// Settings are the settings of the log, for both components' configuration structs. The zero value is
// JSON at level info.
type Settings struct {
	Level  string `flag:"log-level"  default:"info" enum:"debug,info,warn,error" help:"least severe level to log; debug logs each step of a change"`
	Format string `flag:"log-format" default:"json" enum:"json,text"             help:"format of log lines: JSON objects, or key=value pairs for reading at a terminal"`
}

// NewLogger returns a logger that writes one line per record to w.
func (s Settings) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{}
	if s.Level != "" {
		var level slog.Level
		if err := level.UnmarshalText([]byte(s.Level)); err != nil {
			panic(err) // package settings accepts no other level
		}
		options.Level = level
	}
	if s.Format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
