// Package audit reads the audit log of a kube-apiserver: who requested and who wrote what. Metrics do not say that.
// A write whose effect has been seen is counted.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// Policy is the audit policy that the log has to be written by: all writes of
// EndpointSlices, both when they arrive and when they are answered.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - group: discovery.k8s.io
    resources: [endpointslices]
- level: None
`

// Write is one answered request that may have changed an EndpointSlice.
type Write struct {
	At   time.Time // when it was answered
	User string
	From string // the address that it came from, or that a proxy says it came from
	Verb string
	Name string // namespace/name
	Code int    // HTTP status
}

// Log is an audit log in a file.
type Log struct {
	Path string
	// ServerChanged returns when the server was last started or killed, which a log does not say: it never answers
	// a request that arrived before. Nil: it was started once, and still runs.
	ServerChanged func() time.Time
}

// Entry is one line of the log: a stage of a request.
type Entry struct {
	ID         string    `json:"auditID"`
	Stage      string    `json:"stage"`
	Verb       string    `json:"verb"`
	ReceivedAt time.Time `json:"requestReceivedTimestamp"`
	At         time.Time `json:"stageTimestamp"`
	User       struct {
		Name string `json:"username"`
	} `json:"user"`
	From   []string `json:"sourceIPs"`
	Object struct {
		Resource  string `json:"resource"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// Writes returns the writes of a user so far, in the order of the answers; an empty
// user stands for everyone. The server logs an answer just after it has sent it, so
// Writes waits for those requests that are logged as arrived and not yet as answered.
func (l Log) Writes(ctx context.Context, user string) ([]Write, error) {
	for {
		writes, pending, err := l.read(user)
		if err != nil || pending == 0 {
			return writes, err
		}
		select { // a file tells nobody that it grew
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("read audit log %s: %d requests are not answered yet: %w", l.Path, pending, context.Cause(ctx))
		}
	}
}

// Entries returns the lines so far.
func (l Log) Entries() ([]Entry, error) {
	raw, err := os.ReadFile(l.Path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var all []Entry
	for line := range bytes.Lines(raw[:bytes.LastIndexByte(raw, '\n')+1]) { // the last line may be half written
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read audit log %s: %w", l.Path, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (l Log) read(user string) (writes []Write, pending int, err error) {
	all, err := l.Entries()
	if errors.Is(err, fs.ErrNotExist) { // the server makes it with the first line
		return nil, 0, nil
	}
	var changed time.Time
	if l.ServerChanged != nil {
		changed = l.ServerChanged()
	}
	open := map[string]bool{}
	for _, e := range all {
		if user != "" && e.User.Name != user {
			continue
		}
		switch e.Stage {
		case "RequestReceived":
			if !e.ReceivedAt.Before(changed) {
				open[e.ID] = true
			}
		case "ResponseComplete", "Panic":
			delete(open, e.ID)
			writes = append(writes, Write{
				At: e.At, User: e.User.Name, From: strings.Join(e.From[:min(1, len(e.From))], ""), Verb: e.Verb, Code: e.Response.Code,
				Name: strings.TrimPrefix(e.Object.Namespace+"/"+e.Object.Name, "/"),
			})
		}
	}
	return writes, len(open), err
}
