package ionosapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// SideDoor serves what people and scripts switch the cloud with: plain JSON under /lab/,
// in the form of State and Fault. It asks for no token: give it to the loopback only.
func SideDoor(c *Cloud) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, do func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			out, err := do(r)
			status := http.StatusOK
			switch {
			case errors.Is(err, ErrUnknown):
				status, out = http.StatusNotFound, object{"error": err.Error()}
			case err != nil:
				status, out = http.StatusBadRequest, object{"error": err.Error()}
			case out == nil:
				w.WriteHeader(http.StatusNoContent)
				return
			}
			b, _ := json.MarshalIndent(out, "", "  ")
			send(w, status, "application/json", append(b, '\n'))
		})
	}
	handle("GET /lab/state", func(*http.Request) (any, error) { return c.State(), nil })
	handle("PUT /lab/state", func(r *http.Request) (any, error) {
		var s State
		if err := read(r, &s); err != nil {
			return nil, err
		}
		return nil, c.Load(s)
	})
	handle("GET /lab/kinds", func(*http.Request) (any, error) { return Kinds(), nil })
	handle("GET /lab/faults", func(*http.Request) (any, error) { return c.Faults(), nil })
	handle("POST /lab/faults", func(r *http.Request) (any, error) {
		var f Fault
		if err := read(r, &f); err != nil {
			return nil, err
		}
		id, err := c.AddFault(f)
		return object{"id": id}, err
	})
	handle("DELETE /lab/faults", func(*http.Request) (any, error) { c.ClearFaults(); return nil, nil })
	handle("DELETE /lab/faults/{id}", func(r *http.Request) (any, error) {
		id, _ := strconv.Atoi(r.PathValue("id"))
		return nil, c.RemoveFault(id)
	})
	handle("GET /lab/requests", func(*http.Request) (any, error) {
		return object{"asked": c.Asked(), "last": c.Requests()}, nil
	})
	return mux
}

// read wants one object without fields that nobody knows: a typing mistake must not pass.
func read(r *http.Request, to any) error {
	return Decode(http.MaxBytesReader(nil, r.Body, 16<<20), to)
}

// Decode reads a State, a Fault or the like out of JSON, and refuses unknown fields.
func Decode(from io.Reader, to any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON")
	}
	return nil
}
