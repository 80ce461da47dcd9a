package link

import (
	"context"
	"log/slog"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/codes"
)

// newCallLogger lets the interceptors write to our log: one line at the end of each call, never
// a message's content.
func newCallLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, l logging.Level, msg string, fields ...any) {
		log.Log(ctx, slog.Level(l), msg, fields...)
	})
}

// peerLogFields name the peer, by the name that the list has.
func peerLogFields(ctx context.Context) logging.Fields {
	c := connectionFromContext(ctx)
	if c == nil || len(c.names) == 0 {
		return nil
	}
	name := c.names[0]
	if e := c.currentEntry(); e != nil {
		name = e.grant.SAN
	}
	return logging.Fields{"peer.san", string(name)}
}

// callLogLevel of the line about a finished call. UNAVAILABLE is how streams end in the ordinary
// course of things (R11).
func callLogLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK, codes.Canceled, codes.Unavailable, codes.NotFound, codes.DeadlineExceeded:
		return logging.LevelInfo
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return logging.LevelError
	default:
		return logging.LevelWarn
	}
}
