package resolve

import "strings"

// parseProviderID reads both forms in use, ionos://<server> and
// ionos:///<datacenter>/<server>, in lower case. Other forms are unknown.
func parseProviderID(s string) (datacenter, server string, ok bool) {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(s)), "ionos://")
	if !ok {
		return "", "", false
	}
	if isUUID(rest) {
		return "", rest, true
	}
	rest, ok = strings.CutPrefix(rest, "/")
	if !ok {
		return "", "", false
	}
	datacenter, server, ok = strings.Cut(rest, "/")
	if !ok || !isUUID(datacenter) || !isUUID(server) {
		return "", "", false
	}
	return datacenter, server, true
}

// isUUID reports whether s is a UUID in its usual form, in lower case.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return true
}

// swapUUID reverses the bytes of the first three fields.
func swapUUID(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}
