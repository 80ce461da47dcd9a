package link

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/codes"
)

// newCallLogger returns the logger of the interceptors, which write one line at the end of each call and
// never the content of a message.
func newCallLogger(log *slog.Logger) logging.Logger {
	return logging.LoggerFunc(func(ctx context.Context, l logging.Level, msg string, fields ...any) {
		log.Log(ctx, slog.Level(l), msg, fields...)
	})
}

// peerLogFields names the peer, preferably by its name in the client list.
func peerLogFields(ctx context.Context) logging.Fields {
	c := connectionFromContext(ctx)
	return logging.Fields{"peer.san", string(cmp.Or(c.permission.Load().SAN, c.names[0]))}
}

// callLogLevel returns the level of the line about a finished call. UNAVAILABLE is Info because streams
// regularly end with it (R11).
func callLogLevel(code codes.Code) logging.Level {
	switch code {
	case codes.OK:
		return logging.LevelDebug
	case codes.Unavailable, codes.DeadlineExceeded:
		return logging.LevelInfo
	default:
		return logging.DefaultServerCodeToLevel(code)
	}
}
