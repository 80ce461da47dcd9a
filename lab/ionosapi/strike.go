package ionosapi

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// replaced gives another answer than the true one, if a fault says so.
func (a *api) replaced(w *recorder, r *http.Request, hit faults) bool {
	for _, f := range hit {
		switch f.Kind {
		case TooManyRequests, TooManyRequestsSeconds, TooManyRequestsDate:
			wait := time.Duration(f.Wait)
			if wait == 0 {
				wait = 10 * time.Second
			}
			switch f.Kind {
			case TooManyRequestsSeconds:
				w.Header().Set("Retry-After", strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10))
			case TooManyRequestsDate:
				w.Header().Set("Retry-After", time.Now().Add(wait).UTC().Format(http.TimeFormat))
			}
			w.Header().Set("X-RateLimit-Remaining", "0")
			refuse(w, refusal{http.StatusTooManyRequests, "429", "Too many requests"})
		case ServerError:
			refuse(w, refusal{http.StatusInternalServerError, "500", "Internal server error"})
		case BadGatewayHTML:
			send(w, http.StatusBadGateway, "text/html",
				[]byte("<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>\n"))
		case Unavailable:
			refuse(w, refusal{http.StatusServiceUnavailable, "503", "Service unavailable"})
		case Unauthorized:
			refuse(w, unauthorized)
		case Hang:
			select {
			case <-r.Context().Done():
			case <-a.stop:
			}
			panic(http.ErrAbortHandler)
		case Reset:
			reset(w)
		case EmptyBody:
			send(w, http.StatusOK, "application/json", nil)
		case EmptyObject:
			send(w, http.StatusOK, "application/json", []byte("{}"))
		case NoContent:
			w.WriteHeader(http.StatusNoContent)
		case ErrorIn200:
			send(w, http.StatusOK, "application/json", errorBody(refusal{http.StatusInternalServerError, "500", "Internal server error"}))
		case Redirect:
			target := orElse(f.Target, "https://elsewhere.invalid")
			http.Redirect(w, r, target+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		default:
			continue
		}
		return true
	}
	return false
}

// reset drops the connection so that the client reads "connection reset by peer".
func reset(w *recorder) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // it can only be gone already
	}
	_ = conn.Close()
}

// alter changes what is seen of a datacenter; d is a copy.
func alter(d *Datacenter, hit faults) {
	if hit.has(EmptyList) {
		d.Servers = nil
	}
	for i := range d.Servers {
		s := &d.Servers[i]
		if hit.has(Busy) {
			s.State = "BUSY"
		}
		if hit.has(DuplicateNames) {
			s.Name = d.Servers[0].Name
		}
		if hit.has(LateNICs) {
			s.NICs = nil
		}
	}
	for _, kind := range []Kind{SharedAddress, HiddenSharing} {
		if f, ok := hit.find(kind); ok {
			share(d, orElse(f.Address, "10.0.0.250"), kind == SharedAddress)
		}
	}
	if hit.has(ShuffledIPs) {
		for _, s := range d.Servers {
			for _, n := range s.NICs {
				rand.Shuffle(len(n.IPs), func(i, j int) { n.IPs[i], n.IPs[j] = n.IPs[j], n.IPs[i] })
			}
		}
	}
}

// share puts an address first on every NIC, as an active failover group does.
func share(d *Datacenter, address string, declare bool) {
	for i := range d.Servers {
		for j := range d.Servers[i].NICs {
			n := &d.Servers[i].NICs[j]
			n.IPs = slices.Insert(n.IPs, 0, address)
			if !declare {
				continue
			}
			for k := range d.LANs {
				l := &d.LANs[k]
				if l.ID == n.LAN && !slices.ContainsFunc(l.Failover, func(f Failover) bool { return f.IP == address }) {
					l.Failover = append(l.Failover, Failover{IP: address, NIC: n.ID})
				}
			}
		}
	}
}

var (
	lastType  = regexp.MustCompile(`(?s)(.*"type": ")(server|nic|lan|datacenter|collection)(")`)
	numberLAN = regexp.MustCompile(`"lan": (\d+)`)
	firstID   = regexp.MustCompile(`"id": "`)
)

// spoil sends a true answer as the faults spoil its bytes.
func spoil(w *recorder, hit faults, body []byte) {
	contentType := "application/json"
	if hit.has(ItemsNull) {
		body = nullItems(body)
	}
	if hit.has(UnknownType) {
		body = lastType.ReplaceAll(body, []byte(`${1}quantum-thing${3}`))
	}
	if hit.has(StringLAN) {
		body = numberLAN.ReplaceAll(body, []byte(`"lan": "$1"`))
	}
	if hit.has(WrongID) {
		at := firstID.FindIndex(body)[1]
		body = slices.Concat(body[:at], []byte("something-else-"), body[at:])
	}
	if hit.has(PlainText) {
		contentType = "text/plain"
	}
	if hit.has(Truncated) {
		body = body[:len(body)/2]
	}
	f, ok := hit.find(Oversized)
	if !ok {
		send(w, http.StatusOK, contentType, body)
		return
	}
	left := f.Bytes
	if left == 0 {
		left = 128 << 20
	}
	send(w, http.StatusOK, contentType, append(bytes.TrimSuffix(body, []byte("\n}")), ",\n  \"padding\": \""...))
	block := bytes.Repeat([]byte("x"), 64<<10)
	for ; left > 0; left -= int64(len(block)) {
		if _, err := w.Write(block[:min(left, int64(len(block)))]); err != nil {
			return
		}
	}
	_, _ = w.Write([]byte("\"\n}"))
}
