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
  /** The heading of the type, in the language of the page. */
  heading?: string;
  /** A sentence with `{who}` and `{what}` in it. */
  phrase?: string;
  /** The title of the object's topic, for `{what}`. */
  about?: string;
}

export interface Counts {
  unseen: number;
  unread: number;
}

/** The attributes of the element. */
export interface TidingsAttributes {
  user?: string;
  server?: string;
  token?: string;
  stream?: boolean | '';
  inline?: boolean | '';
  limit?: number | string;
  'badge-max'?: number | string;
  group?: boolean | '';
  open?: boolean | '';
  preferences?: string;
  lang?: string;
  [text: `phrase-${string}` | `label-${string}`]: string | undefined;
}

export class TidingsInbox extends HTMLElement {
  /** Returns a user token. Called if there is none, and once more if the server answers 401. */
  getToken?: () => Promise<string> | string;
  /**
   * Renders an item into `place`, an element of the page. May return a function, which is called
   * when the item leaves the list. Set it before the panel opens.
   */
  renderItem?: (item: Item, place: HTMLElement) => void | (() => void);
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
    /** Items arrived, for toasts. */
    'tidings-new': CustomEvent<Item[]>;
    /** The counts changed. */
    'tidings-count': CustomEvent<Counts>;
    /** A request failed. The detail is the response, or an error if there was none. */
    'tidings-error': CustomEvent<Response | Error>;
  }
}
