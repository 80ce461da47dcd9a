package roster

import "time"

// Ask is what the roster wants of the outside now, and when it wants to be asked again.
type Ask struct {
	Look Look      // begin this look at the source; its answer is given by Looked
	List bool      // begin a whole listing of the cloud; its answer is given by Listed
	Wake time.Time // call Ask again at this time at the latest
}
