/** How an item stands with its reader. */
export type State = 'unseen' | 'seen' | 'read' | 'archived';

export interface Actor {
  id: string;
  name?: string | null;
  url?: string | null;
  image?: string | null;
}

export interface FeedObject {
  id: string;
  title?: string | null;
  by?: string | null;
  url?: string | null;
  image?: string | null;
  data?: unknown;
}

/** One thing that happened, as the feed's API answers it. */
export interface Item {
  id: string;
  type: string;
  at: string;
  state: State;
  /** Whether a mail told it: a digest, or one of its own. */
  mailed: boolean;
  object: FeedObject;
  actor?: Actor;
  text?: string;
  data?: unknown;
  reason?: string;
}

export class TidingsInbox extends HTMLElement {
  /** Asked for a token when there is none, and once more when the server refuses the one it has. */
  getToken?: () => Promise<string> | string;
}

declare global {
  interface HTMLElementTagNameMap {
    'tidings-inbox': TidingsInbox;
  }
  interface HTMLElementEventMap {
    /** The panel was opened. */
    'tidings-open': CustomEvent<undefined>;
    /** An item was chosen. If it is prevented, the link is not followed. */
    'tidings-item': CustomEvent<Item>;
    /** Something could not be loaded or saved: the server's answer, or why there was none. */
    'tidings-error': CustomEvent<Response | Error>;
  }
}
