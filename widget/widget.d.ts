/** The state of an item for its user. */
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

/** An event in the feed, as the API returns it. */
export interface Item {
  id: string;
  type: string;
  at: string;
  state: State;
  /** Whether a digest or another email included it. */
  mailed: boolean;
  object: FeedObject;
  actor?: Actor;
  text?: string;
  data?: unknown;
  reason?: string;
}

export class TidingsInbox extends HTMLElement {
  /** Returns a user token. Called if there is none, and once more if the server answers 401. */
  getToken?: () => Promise<string> | string;
}

declare global {
  interface HTMLElementTagNameMap {
    'tidings-inbox': TidingsInbox;
  }
  interface HTMLElementEventMap {
    /** The panel opened. */
    'tidings-open': CustomEvent<undefined>;
    /** The user chose an item. Prevent the default to follow the link yourself. */
    'tidings-item': CustomEvent<Item>;
    /** A request failed. The detail is the response, or an error if there was none. */
    'tidings-error': CustomEvent<Response | Error>;
  }
}
